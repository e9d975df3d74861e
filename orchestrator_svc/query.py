"""What a search asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.depth import Depth
from tandem.contract.attribute_wire import CheckedFilter
from tandem.contract.content import Content, Modality, Tokens, TruncationPolicy
from tandem.contract.fusion_method import FusionMethod
from tandem.errors import QueryInvalid, RankingInvalid

MAX_PART_COUNT = 16


def check_part_count(count: int) -> None:
    """Raises QueryInvalid."""
    if not 1 <= count <= MAX_PART_COUNT:
        raise QueryInvalid(why=f"it has {count:,} parts, not 1 to {MAX_PART_COUNT}")


def _check(name: str, value: float | None, low: float) -> None:
    # Not `low <= value` alone turned around: NaN has to be refused too.
    if value is not None and not low <= value <= 1.0:
        raise RankingInvalid(why=f"{name} is {value:g}; it lies between {low:g} and 1")


@dataclass(frozen=True, slots=True)
class StoredItemSource:
    """An item of the searched index, as a query."""

    item_id: str


@dataclass(frozen=True, slots=True, eq=False)
class EncodingSource:
    """What the caller had encoded before: a float32 `embedding` [d] of unit length."""

    embedding: NDArray[np.float32]
    modality: Modality
    tokens: Tokens | None
    """For the cross-encoder; None where the caller has none."""
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPart:
    """One of the things a query is made of, and its share; a negative one turns away from it."""

    source: Content | StoredItemSource | EncodingSource
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRule:
    """How scores make the order, and what is left out of it.

    Raises RankingInvalid where a number is out of range.
    """

    fusion: FusionMethod = FusionMethod.CROSS_ENCODER
    cross_encoder_weight: float = 0.5
    """0 to 1; of the two sums."""
    min_probability: float | None = None
    relevance_weight: float | None = None
    """Maximal marginal relevance: 1 closeness alone, 0 variety alone; None leaves the order."""
    duplicate_similarity: float | None = None
    """Of items at least this similar only the best stays; None leaves all."""

    def __post_init__(self) -> None:
        _check("cross_encoder_weight", self.cross_encoder_weight, 0.0)
        _check("min_probability", self.min_probability, 0.0)
        _check("relevance_weight", self.relevance_weight, 0.0)
        _check("duplicate_similarity", self.duplicate_similarity, -1.0)

    @property
    def are_embeddings_needed(self) -> bool:
        """Whether candidates are compared with each other."""
        return self.relevance_weight is not None or self.duplicate_similarity is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What to look for, where, and how deep."""

    parts: Sequence[WeightedPart]
    index_id: str
    target_modality: Modality
    depth: Depth
    rerank_disabled: bool = False
    content_included: bool = False
    filter: CheckedFilter | None = None
    """What the items' attributes must be; None finds all."""
    consistency_tokens: Sequence[str] = ()
    """Of writes that the search must see."""
    full_coverage_required: bool = False
    all_modalities_included: bool = False
    ranking: RankingRule = RankingRule()
    explained: bool = False
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR
    rerank_required: bool = False
    adaptive_depth: bool = False

    @property
    def modalities(self) -> Sequence[Modality]:
        """What is found; the target first."""
        if self.all_modalities_included:
            return (self.target_modality, self.target_modality.other)
        return (self.target_modality,)

    @property
    def as_retrieved(self) -> SearchQuery:
        """The same without what the cross-encoder decides."""
        ranking = replace(self.ranking, fusion=FusionMethod.CROSS_ENCODER, min_probability=None)
        return replace(self, ranking=ranking)
