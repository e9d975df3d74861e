"""Which published weight goes where in PretrainedEncoder, by name; nothing is left to chance.

Shapes: D width.
"""

import re
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

# Of models with a head on top; the encoder's weights are then behind one of these.
_PREFIXES = ("bert.", "roberta.")
_HEADS = re.compile(r"(cls|lm_head|classifier|qa_outputs)\.")
# Counters that older files carry beside the weights.
_COUNTERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Google's first BERT files call a norm's weight and bias so.
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

_WORD = "embeddings.word_embeddings.weight"
_POSITION = "embeddings.position_embeddings.weight"
_TYPE = "embeddings.token_type_embeddings.weight"
_POOLER = "pooler.dense"
_LAYER_PARTS = {
    "attention.output.dense": "attention_out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.0",
    "output.dense": "feed_forward.2",
    "output.LayerNorm": "feed_forward_norm",
}
_QUERY_KEY_VALUE = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))


def named_as_ours(
    published: Mapping[str, Tensor],
    layer_count: int,
    layer_numbers: Sequence[int],
    first_position: int,
    own: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Returns what PretrainedEncoder takes from the published weights, by its own names.

    `layer_count` is how many layers were published and `layer_numbers` which are taken, in order;
    `first_position` is the row of the position table for a text's first token; `own` the encoder's
    weights as they are. Raises ValueError naming every published weight that is missing,
    unexpected, or of a wrong shape.
    """
    source = _Source(_encoder_weights(published))
    ours: dict[str, Tensor] = {"word.weight": source.take(_WORD)}
    positions = source.take(_POSITION)
    ours["text_position"] = positions[first_position:][: len(own["text_position"])]
    types = source.take(_TYPE)
    ours["token_type"] = torch.cat([types, torch.zeros_like(types)])[:2]
    for end in ("weight", "bias"):
        norm = source.take(f"embeddings.LayerNorm.{end}")
        # Image tokens then come into the first layer at the scale that it has learnt for words.
        ours[f"embedding_norm.{end}"], ours[f"image_norm.{end}"] = norm, norm.clone()
        for number, published_number in enumerate(layer_numbers):
            prefix = f"encoder.layer.{published_number}"
            ours[f"layers.{number}.query_key_value.{end}"] = torch.cat(
                [source.take(f"{prefix}.{part}.{end}") for part in _QUERY_KEY_VALUE]
            )
            for part, own_part in _LAYER_PARTS.items():
                ours[f"layers.{number}.{own_part}.{end}"] = source.take(f"{prefix}.{part}.{end}")
    if source.has(f"{_POOLER}.weight"):
        # Our pooler reads the first position and the mean. It starts as the published one, which
        # reads the first alone, and learns what the mean is worth.
        weight_DD = source.take(f"{_POOLER}.weight")
        ours["pooler.weight"] = torch.cat([weight_DD, torch.zeros_like(weight_DD)], dim=1)
        ours["pooler.bias"] = source.take(f"{_POOLER}.bias")
    source.refuse_gaps(set(range(layer_count)) - set(layer_numbers))
    _refuse_shapes(ours, own)
    return ours


class _Source:
    """The published weights, and which of them were asked for."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights
        self._taken: set[str] = set()
        self._missing: list[str] = []

    def has(self, name: str) -> bool:
        return name in self._weights

    def take(self, name: str) -> Tensor:
        """Returns the weight; of one that is missing, nothing, for `refuse_gaps` to name later."""
        self._taken.add(name)
        if name not in self._weights:
            self._missing.append(name)
            return torch.empty(0)
        return self._weights[name]

    def refuse_gaps(self, left_out_layers: Collection[int]) -> None:
        """Raises ValueError for what is missing, and for what is there and nobody took."""
        left_out = tuple(f"encoder.layer.{number}." for number in left_out_layers)
        unexpected = [
            name
            for name in sorted(self._weights.keys() - self._taken)
            if not name.startswith(left_out)
        ]
        faults = [
            f"{what} {', '.join(names)}"
            for what, names in (("missing", self._missing), ("unexpected", unexpected))
            if names
        ]
        if faults:
            raise ValueError(f"the weights are not those of config.json: {'; '.join(faults)}")


def _encoder_weights(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the encoder's own weights under their present names, without prefix and heads."""
    prefix = next((p for p in _PREFIXES if any(name.startswith(p) for name in published)), "")
    weights = {}
    for published_name, tensor in published.items():
        name = published_name.removeprefix(prefix)
        if _HEADS.match(published_name) or name in _COUNTERS:
            continue
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        weights[name] = tensor
    return weights


def _refuse_shapes(ours: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    wrong = [
        f"{name} {list(tensor.shape)} instead of {list(own[name].shape)}"
        for name, tensor in ours.items()
        if tensor.shape != own[name].shape
    ]
    if wrong:
        raise ValueError(f"the weights are not those of config.json: {', '.join(wrong)}")
