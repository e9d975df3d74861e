"""Maps published weights to those of JointEncoder by name, and rejects any mismatch.

Shapes: D width.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from tandem.modeling.config import JointConfig
from tandem.modeling.stored_weights import StoredWeight, weight_faults

Weight = TypeVar("Weight")

# Prefixes of the encoder's weights in models with a head.
_PREFIXES = ("bert.", "roberta.")
_HEADS = re.compile(r"(cls|lm_head|classifier|qa_outputs)\.")
# Counters that older files have in addition to the weights.
_COUNTERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Names of a norm's weight and bias in Google's first BERT files.
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
_NORMS = tuple(part for part in _LAYER_PARTS if part.endswith("LayerNorm"))
_QUERY_KEY_VALUE = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))


def published_faults(
    declared: Mapping[str, StoredWeight],
    config: JointConfig,
    position_count: int,
    type_count: int | None,
) -> list[str]:
    """Returns the differences between the published weights and those of the shape, in words.

    `type_count` None accepts any number of token types.
    """
    found, repeated = _encoder_weights(declared)
    faults = [f"twice, under an old name and a new: {', '.join(repeated)}"] if repeated else []
    if type_count is None:
        types = found.get(_TYPE)
        type_count = types.shape[0] if types is not None and types.shape else 1
    has_pooler = any(name.startswith(_POOLER) for name in found)
    shapes = _shapes(config, position_count, max(1, type_count), has_pooler)
    wanted = {name: StoredWeight("F32", shape) for name, shape in shapes.items()}
    return faults + weight_faults(found, wanted)


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
    source, _ = _encoder_weights(published)
    types = source[_TYPE]
    ours: dict[str, Tensor] = {
        "word.weight": source[_WORD],
        "text_position": source[_POSITION][first_position:][: len(own["text_position"])],
        "token_type": torch.cat([types, torch.zeros_like(types)])[:2],
    }
    for end in ("weight", "bias"):
        norm = source[f"embeddings.LayerNorm.{end}"]
        # Image tokens then enter the first layer at the scale that it learned for words.
        ours[f"embedding_norm.{end}"], ours[f"image_norm.{end}"] = norm, norm.clone()
        for number, published_number in enumerate(layer_numbers):
            prefix = f"encoder.layer.{published_number}"
            ours[f"layers.{number}.query_key_value.{end}"] = torch.cat(
                [source[f"{prefix}.{part}.{end}"] for part in _QUERY_KEY_VALUE]
            )
            for part, own_part in _LAYER_PARTS.items():
                ours[f"layers.{number}.{own_part}.{end}"] = source[f"{prefix}.{part}.{end}"]
    if f"{_POOLER}.weight" in source:
        # Our pooler reads the first position and the mean. It starts as the published one, which
        # reads only the first, and learns the weight of the mean.
        weight_DD = source[f"{_POOLER}.weight"]
        ours["pooler.weight"] = torch.cat([weight_DD, torch.zeros_like(weight_DD)], dim=1)
        ours["pooler.bias"] = source[f"{_POOLER}.bias"]
    return ours


def _shapes(
    config: JointConfig, position_count: int, type_count: int, has_pooler: bool
) -> dict[str, tuple[int, ...]]:
    """Returns the weights of a published encoder of this shape, by their present names."""
    width, inner_width = config.width, config.feed_forward_width or 4 * config.width
    shapes: dict[str, tuple[int, ...]] = {
        _WORD: (config.vocabulary_size, width),
        _POSITION: (position_count, width),
        _TYPE: (type_count, width),
    }
    into_and_out = {
        **dict.fromkeys(_QUERY_KEY_VALUE, (width, width)),
        "attention.output.dense": (width, width),
        "intermediate.dense": (width, inner_width),
        "output.dense": (inner_width, width),
    }
    for number in range(config.layer_count):
        for part, (into, out) in into_and_out.items():
            shapes[f"encoder.layer.{number}.{part}.weight"] = (out, into)
            shapes[f"encoder.layer.{number}.{part}.bias"] = (out,)
    norms = ["embeddings.LayerNorm"]
    for number in range(config.layer_count):
        norms += [f"encoder.layer.{number}.{part}" for part in _NORMS]
    shapes |= {f"{norm}.{end}": (width,) for norm in norms for end in ("weight", "bias")}
    if has_pooler:
        shapes |= {f"{_POOLER}.weight": (width, width), f"{_POOLER}.bias": (width,)}
    return shapes


def _encoder_weights(published: Mapping[str, Weight]) -> tuple[dict[str, Weight], list[str]]:
    """Returns the encoder's weights under their present names, and the names that occur twice.

    Prefixes and heads are removed.
    """
    prefix = next((p for p in _PREFIXES if any(name.startswith(p) for name in published)), "")
    weights: dict[str, Weight] = {}
    repeated = []
    for published_name, weight in published.items():
        name = published_name.removeprefix(prefix)
        if _HEADS.match(published_name) or name in _COUNTERS:
            continue
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        if name in weights:
            repeated.append(name)
        weights[name] = weight
    return weights, repeated
