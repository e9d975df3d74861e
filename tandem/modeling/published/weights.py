"""Maps published shapes and weights of BERT to our modules by name, and rejects any mismatch.

Shapes: D width.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from tandem.modeling.config import JointConfig
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.stored_weights import StoredWeight, weight_faults

Weight = TypeVar("Weight")

Sources = Mapping[str, tuple[str, ...]]
"""Published names by a module's own name; several are put one below the other."""

ENDS: Final = ("weight", "bias")
# Prefixes of the encoder's weights in models with a head.
_PREFIXES: Final = ("bert.", "roberta.")
_HEADS: Final = re.compile(r"(cls|lm_head|classifier|qa_outputs)\.")
# Older files store these counters with the weights, and norms under Google's first names.
_COUNTERS: Final = re.compile(r"(^|\.)(position_ids|token_type_ids)$")
_OLD_ENDS: Final = {"gamma": "weight", "beta": "bias"}

# Another value would be another function of the same weights.
SERVED_BERT: Final[dict[str, tuple[object, ...]]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
}
_BERT_FIELDS: Final = {
    "vocabulary_size": "vocab_size",
    "width": "hidden_size",
    "layer_count": "num_hidden_layers",
    "head_count": "num_attention_heads",
    "feed_forward_width": "intermediate_size",
    "max_text_tokens": "max_position_embeddings",
}
_POSITION: Final = "embeddings.position_embeddings.weight"
_TYPE: Final = "embeddings.token_type_embeddings.weight"
_POOLER: Final = "pooler.dense"
_LAYER_PARTS: Final = {
    "attention_out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.0": "intermediate.dense",
    "feed_forward.2": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


def bert_config(fields: Mapping[str, Any], **own: Any) -> JointConfig:  # noqa: ANN401  of JointConfig
    """Returns the shape that BERT's config.json gives, with fields of our own."""
    return JointConfig(
        **{name: fields[published] for name, published in _BERT_FIELDS.items()} | own,
        encoder="post_norm",
        norm_epsilon=fields.get("layer_norm_eps", 1e-12),
    )


def present_names(weights: Mapping[str, Weight], *prefixes: str) -> dict[str, Weight]:
    """Returns weights by their present names, without prefixes, counters and old ends."""
    present = {}
    for stored_name, weight in weights.items():
        name = stored_name
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        stem, _, end = name.rpartition(".")
        if not _COUNTERS.search(name):
            present[f"{stem}.{_OLD_ENDS.get(end, end)}" if stem else name] = weight
    return present


def both_ends(own: str, published: str) -> dict[str, tuple[str, ...]]:
    """Returns the sources of a module's weight and bias."""
    return {f"{own}.{end}": (f"{published}.{end}",) for end in ENDS}


def bert_layers(numbers: Iterable[int]) -> dict[str, tuple[str, ...]]:
    """Returns the sources of `layers`, of the published ones of these numbers in order."""
    sources: dict[str, tuple[str, ...]] = {}
    for number, published_number in enumerate(numbers):
        layer = f"encoder.layer.{published_number}"
        for end in ENDS:
            sources[f"layers.{number}.query_key_value.{end}"] = tuple(
                f"{layer}.attention.self.{part}.{end}" for part in ("query", "key", "value")
            )
        for own, published in _LAYER_PARTS.items():
            sources |= both_ends(f"layers.{number}.{own}", f"{layer}.{published}")
    return sources


def published_weights(own: Mapping[str, Tensor], sources: Sources) -> dict[str, Tensor]:
    """Returns a module's own weights under their published names, as views."""
    return {
        part: rows
        for name, parts in sources.items()
        for part, rows in zip(parts, own[name].chunk(len(parts)), strict=True)
    }


def wanted_weights(own: Mapping[str, Tensor], sources: Sources) -> dict[str, StoredWeight]:
    """Returns the published weights that fill a module's own, with their shapes."""
    wanted: dict[str, StoredWeight] = {}
    for name, parts in sources.items():
        rows, *rest = own[name].shape
        wanted |= dict.fromkeys(parts, StoredWeight("F32", (rows // len(parts), *rest)))
    return wanted


def published_faults(
    declared: Mapping[str, StoredWeight], config: JointConfig, position_count: int
) -> list[str]:
    """Returns the differences between the published weights and those of the shape, in words."""
    found = _encoder_weights(declared)
    type_count = found[_TYPE].shape[0] if _TYPE in found else 1
    with torch.device("meta"):
        own = JointEncoder(config).state_dict()
    wanted = wanted_weights(own, _sources(range(config.layer_count)))
    wanted[_POSITION] = StoredWeight("F32", (position_count, config.width))
    wanted[_TYPE] = StoredWeight("F32", (type_count, config.width))
    if any(name.startswith(_POOLER) for name in found):
        wanted[f"{_POOLER}.weight"] = StoredWeight("F32", (config.width, config.width))
        wanted[f"{_POOLER}.bias"] = StoredWeight("F32", (config.width,))
    return weight_faults(found, wanted)


def named_as_ours(
    published: Mapping[str, Tensor],
    layer_numbers: Sequence[int],
    first_position: int,
    own: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Returns published weights without faults under the names of JointEncoder.

    `layer_numbers` are the layers that are taken, in order; `first_position` is the row of the
    position table for a text's first token; `own` the encoder's weights as they are.
    """
    source = _encoder_weights(published)
    types = source[_TYPE]
    ours = {
        name: torch.cat([source[part] for part in parts])
        for name, parts in _sources(layer_numbers).items()
    }
    ours["text_position"] = source[_POSITION][first_position:][: len(own["text_position"])]
    ours["token_type"] = torch.cat([types, torch.zeros_like(types)])[:2]
    if f"{_POOLER}.weight" in source:
        # Our pooler reads the first position and the mean. It starts as the published one, which
        # reads only the first, and learns the weight of the mean.
        weight_DD = source[f"{_POOLER}.weight"]
        ours["pooler.weight"] = torch.cat([weight_DD, torch.zeros_like(weight_DD)], dim=1)
        ours["pooler.bias"] = source[f"{_POOLER}.bias"]
    return ours


def _sources(layer_numbers: Iterable[int]) -> dict[str, tuple[str, ...]]:
    return {
        "word.weight": ("embeddings.word_embeddings.weight",),
        **both_ends("embedding_norm", "embeddings.LayerNorm"),
        # Image tokens then enter the first layer at the scale that it learned for words.
        **both_ends("image_norm", "embeddings.LayerNorm"),
        **bert_layers(layer_numbers),
    }


def _encoder_weights(published: Mapping[str, Weight]) -> dict[str, Weight]:
    """Returns the encoder's weights under their present names, without prefixes and heads."""
    encoder = {name: each for name, each in published.items() if not _HEADS.match(name)}
    return present_names(encoder, *_PREFIXES)
