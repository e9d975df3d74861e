"""Takes the published weights of a region model by name, and rejects what is missing or unused.

The authors' own loaders skip both with a line in a log, which has left encoders at random weights.
"""

import re
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from tandem.modeling.families.published_folder import PublishedFolder
from tandem.modeling.stored_weights import (
    StoredWeight,
    weight_faults,
    weights_like,
)

Sources = Mapping[str, tuple[str, ...]]
"""Published names by a module's own name; several are put one below the other."""

_OLD_ENDS: Final = {"gamma": "weight", "beta": "bias"}
# Older files store these counters with the weights.
_COUNTERS: Final = re.compile(r"(^|\.)(position_ids|token_type_ids)$")
ENDS: Final = ("weight", "bias")
_BERT_PARTS: Final = {
    "attention_out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.0": "intermediate.dense",
    "feed_forward.2": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


def present_names(weights: Mapping[str, Tensor], *prefixes: str) -> dict[str, Tensor]:
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


def bert_embeddings() -> dict[str, tuple[str, ...]]:
    """Returns the sources of words, positions and types in BERT's naming."""
    return {
        "word.weight": ("embeddings.word_embeddings.weight",),
        "position.weight": ("embeddings.position_embeddings.weight",),
        "token_type.weight": ("embeddings.token_type_embeddings.weight",),
    }


def bert_layers(count: int, prefix: str = "encoder.layer") -> dict[str, tuple[str, ...]]:
    """Returns the sources of `layers` in BERT's naming."""
    sources: dict[str, tuple[str, ...]] = {}
    for number in range(count):
        layer = f"{prefix}.{number}"
        for end in ENDS:
            sources[f"layers.{number}.query_key_value.{end}"] = tuple(
                f"{layer}.attention.self.{part}.{end}" for part in ("query", "key", "value")
            )
        for own, published in _BERT_PARTS.items():
            sources |= both_ends(f"layers.{number}.{own}", f"{layer}.{published}")
    return sources


def layer_count(weights: Mapping[str, Tensor], pattern: str) -> int:
    """Returns one more than the highest number in the first group of a name's match."""
    found = [re.match(pattern, name) for name in weights]
    return 1 + max((int(match[1]) for match in found if match), default=-1)


def fill(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    sources: Sources,
    dropped: re.Pattern[str],
    folder: PublishedFolder,
) -> None:
    """Copies the weights into the model, which is then in evaluation mode.

    `dropped` are the names of weights that the model does not need. Raises
    PublishedCheckpointInvalid for a weight that is missing, unused or of another shape.
    """
    own = model.state_dict()
    assert own.keys() == sources.keys(), sorted(own.keys() ^ sources.keys())
    wanted: dict[str, StoredWeight] = {}
    for name, parts in sources.items():
        rows, *rest = own[name].shape
        for part in parts:
            wanted[part] = StoredWeight("F32", (rows // len(parts), *rest))
    kept = {name: each for name, each in weights.items() if not dropped.match(name)}
    if faults := weight_faults(weights_like(kept), wanted):
        raise folder.refused(
            f"the weights are not those of this family: {'; '.join(faults)}; take configuration "
            "and weights of one checkpoint"
        )
    taken = {name: torch.cat([kept[part] for part in parts]) for name, parts in sources.items()}
    model.load_state_dict(taken)
    model.eval().requires_grad_(False)
