"""Finds the head for pairs among published weights, or takes that of MMT-Retrieval's folder.

Weights are taken by name, and what is missing or unused is refused. The authors' own loaders skip
both with a line in a log, which has left encoders at random weights.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from tandem.modeling.families.regions.region_encoder import MatchHead, RegionEncoder
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.weights import (
    ENDS,
    Sources,
    both_ends,
    published_weights,
    wanted_weights,
)
from tandem.modeling.stored_weights import weight_faults, weights_like

_NO_HEAD: Final = (
    "The checkpoint has no head for pairs, so its results stay in the bi-encoder's order."
)
_NEW_HEAD: Final = "The checkpoint has no head for pairs: training begins one of random weights."
_NOT_TRAINED: Final = "It was pretrained, and not trained for retrieval."
_OUTER_NAME: Final = "classifier"


@dataclass(frozen=True, slots=True)
class OfMmt:
    """Holds what a folder of MMT-Retrieval says around its encoder."""

    head: Mapping[str, Tensor]
    """Weights of the head for pairs; none for a bi-encoder. MMT never uses one of the encoder's
    file, which is left over from pretraining."""
    reads_pooled: bool
    """Whether the head reads the pooled first position, or the position itself."""
    text_length: int | None
    """Tokens of a text without the two special ones; None for the family's limit."""
    region_count: int | None


@dataclass(frozen=True, slots=True, eq=False)
class FilledWeights:
    """Holds what gives a model's present weights, and which stored ones it left out."""

    present: Callable[[], Mapping[str, Tensor]]
    """Returns them under their published names."""
    unused: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TakenHead:
    """Holds an empty head of the weights' shape, and the weights that it takes."""

    head: MatchHead | None
    weights: Mapping[str, Tensor]
    """The encoder's, with those of an outer head."""
    sources: Mapping[str, tuple[str, ...]]
    dropped: tuple[str, ...]
    """Patterns of weights' names that are not needed: a pooler that no head reads."""
    notes: tuple[str, ...]
    """What a user should read."""

    def fill(
        self, folder: PublishedFolder, model: RegionEncoder, encoder: Sources, others: str
    ) -> "FilledWeights":
        """Copies the weights into the model, which is then in evaluation mode.

        `others` is a pattern of names that the model does not need. Raises
        PublishedCheckpointInvalid for a weight that is missing, unused or of another shape.
        """
        own, sources = model.state_dict(), {**encoder, **self.sources}
        unneeded = re.compile("|".join([others, *self.dropped]))
        kept = {name: each for name, each in self.weights.items() if not unneeded.match(name)}
        if faults := weight_faults(weights_like(kept), wanted_weights(own, sources)):
            raise folder.refused(
                f"the weights are not those of this family: {'; '.join(faults)}; take "
                "configuration and weights of one checkpoint"
            )
        model.load_state_dict({n: torch.cat([kept[p] for p in ps]) for n, ps in sources.items()})
        model.eval().requires_grad_(False)
        unused = tuple(sorted(self.weights.keys() - kept.keys()))
        return FilledWeights(lambda: published_weights(model.state_dict(), sources), unused)


def take_head(
    folder: PublishedFolder,
    weights: Mapping[str, Tensor],
    mmt: OfMmt | None,
    names: tuple[str, ...],
    pooler: str,
) -> TakenHead:
    """Returns the first head of `names` that the weights have, or that of MMT's folder.

    `pooler` is the published name of the layer between the first position and the head.
    """
    heads = tuple(f"{name}." for name in names)
    present = [name for name in names if any(key.startswith(f"{name}.") for key in weights)]
    encoder = {key: each for key, each in weights.items() if not key.startswith(heads)}
    if mmt is None:
        name = next(iter(present), names[0])
        own = {key: each for key, each in weights.items() if key.startswith(f"{name}.")}
    else:
        name, own = _OUTER_NAME, dict(mmt.head)
    notes: tuple[str, ...] = ()
    found = _classifier(folder, own, name)
    if found is None and mmt is None and folder.makes_head and f"{pooler}.weight" in weights:
        fresh = nn.Linear(len(weights[f"{pooler}.weight"]), 2)
        own = {f"{name}.{end}": getattr(fresh, end).data for end in ENDS}
        found, notes = _classifier(folder, own, name), (_NEW_HEAD,)
    has_pooler = found is not None and (mmt is None or mmt.reads_pooled)
    dropped = () if has_pooler else (rf"{re.escape(pooler)}\.",)
    if found is None:
        notes = (_NO_HEAD, _NOT_TRAINED) if mmt is None else (_NO_HEAD,)
        return TakenHead(None, encoder, {}, dropped, notes)
    classifier, (count, width), sources = found
    if has_pooler:
        sources |= both_ends("head.pooler", pooler)
    head = MatchHead(width, classifier, count, has_pooler=has_pooler)
    return TakenHead(head, encoder | own, sources, dropped, notes)


def _classifier(
    folder: PublishedFolder, weights: Mapping[str, Tensor], name: str
) -> tuple[nn.Module, tuple[int, int], dict[str, tuple[str, ...]]] | None:
    """Returns an empty classifier, how many numbers it gives of how many, and its sources.

    It is one linear layer, or two with ReLU between. Returns None where the weights have none.
    """
    single, first, second = (_matrix_shape(weights, f"{name}{part}") for part in ("", ".0", ".2"))
    own = "head.classifier"
    if single is not None:
        count, width = single
        classifier: nn.Module = nn.Linear(width, count)
        sources = both_ends(own, name)
    elif first is not None and second is not None:
        (inner, width), (count, _) = first, second
        classifier = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, count))
        sources = both_ends(f"{own}.0", f"{name}.0") | both_ends(f"{own}.2", f"{name}.2")
    else:
        return None
    if count not in (1, 2):
        raise folder.refused(
            f"{name} gives {count:,} numbers, and a head for matches one or two; take a checkpoint "
            "that was trained for retrieval"
        )
    return classifier, (count, width), sources


def _matrix_shape(weights: Mapping[str, Tensor], name: str) -> tuple[int, int] | None:
    weight = weights.get(f"{name}.weight")
    if weight is None or weight.dim() != 2:
        return None
    return weight.shape[0], weight.shape[1]
