"""Queries: what to search for, and how to rank it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tandem.contract.attribute_wire import CheckedFilter
from tandem.contract.content import Content, Modality, Tokens, TruncationPolicy
from tandem.contract.fusion_method import FusionMethod
from tandem.contract.hybrid import HybridFusion
from tandem.errors import QueryInvalid, RankingInvalid
from tandem.search.depth import Depth

MAX_PART_COUNT = 16


def check_part_count(count: int) -> None:
    """Raises QueryInvalid."""
    if not 1 <= count <= MAX_PART_COUNT:
        raise QueryInvalid(why=f"it has {count:,} parts; send 1 to {MAX_PART_COUNT}")


def _check(name: str, value: float | None, low: float) -> None:
    # `not low <= value`, since `value < low` would accept NaN.
    if value is not None and not low <= value <= 1.0:
        raise RankingInvalid(why=f"{name} is {value:g}; set {low:g} to 1")


@dataclass(frozen=True, slots=True)
class StoredItemSource:
    """Names an item of the searched index as the source of a query part."""

    item_id: str


@dataclass(frozen=True, slots=True, eq=False)
class EncodingSource:
    """Holds an encoding that the caller supplies: a float32 `embedding` [d] of unit length."""

    embedding: NDArray[np.float32]
    modality: Modality
    tokens: Tokens | None
    """For the cross-encoder; None if the caller has none."""
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPart:
    """Weighs one part of a query; a negative weight moves the query away from it."""

    source: Content | StoredItemSource | EncodingSource
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRule:
    """States how scores make the order, and which items are left out of it.

    Raises RankingInvalid for a number that is out of range.
    """

    fusion: FusionMethod | None = None
    """None is the method of the model's authors; without one, CROSS_ENCODER."""
    cross_encoder_weight: float = 0.5
    """0 to 1; for the two sums only."""
    min_probability: float | None = None
    relevance_weight: float | None = None
    """Of maximal marginal relevance: 1 is relevance only, 0 diversity only; None skips it."""
    duplicate_similarity: float | None = None
    """Only the best of items at least this similar stays; None keeps all."""

    def __post_init__(self) -> None:
        _check("cross_encoder_weight", self.cross_encoder_weight, 0.0)
        _check("min_probability", self.min_probability, 0.0)
        _check("relevance_weight", self.relevance_weight, 0.0)
        _check("duplicate_similarity", self.duplicate_similarity, -1.0)

    def by_default(self, method: FusionMethod | None) -> RankingRule:
        """Returns the rule with the method of the model's authors."""
        if method is FusionMethod.LOGIT_ADD:
            # BLIP's authors add the similarity to one of two logits, whose difference ours is.
            return replace(self, fusion=method, cross_encoder_weight=1 / 3)
        return replace(self, fusion=method)

    @property
    def are_embeddings_needed(self) -> bool:
        """Whether candidates are compared with each other."""
        return self.relevance_weight is not None or self.duplicate_similarity is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridRule:
    """States which words find items too, and how both lists are fused.

    Raises RankingInvalid for a weight that is out of range.
    """

    keywords: str
    fusion: HybridFusion = HybridFusion.RECIPROCAL_RANK
    keyword_weight: float = 0.5
    """0 to 1; the nearest items have the rest."""

    def __post_init__(self) -> None:
        _check("keyword_weight", self.keyword_weight, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Describes one search; field names are the contract's."""

    parts: Sequence[WeightedPart]
    index_id: str
    target_modality: Modality
    depth: Depth
    rerank_disabled: bool = False
    content_included: bool = False
    attributes_included: bool = False
    filter: CheckedFilter | None = None
    """A condition on the items' attributes; None finds all."""
    consistency_tokens: Sequence[str] = ()
    """Of the writes that the search must see."""
    full_coverage_required: bool = False
    all_modalities_included: bool = False
    ranking: RankingRule = RankingRule()
    explained: bool = False
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR
    rerank_required: bool = False
    adaptive_depth: bool = False
    neighbours_enabled: bool = False
    neighbours_required: bool = False
    hybrid: HybridRule | None = None
    """None finds by embeddings alone."""

    @property
    def modalities(self) -> Sequence[Modality]:
        """The modalities to search for, the target first."""
        if self.all_modalities_included:
            return (self.target_modality, self.target_modality.other)
        return (self.target_modality,)

    @property
    def are_embeddings_needed(self) -> bool:
        """Whether candidates are compared with each other, or with their neighbours."""
        return self.ranking.are_embeddings_needed or self.neighbours_enabled

    @property
    def as_retrieved(self) -> SearchQuery:
        """The same query without what needs the cross-encoder."""
        ranking = replace(self.ranking, fusion=FusionMethod.CROSS_ENCODER, min_probability=None)
        return replace(self, ranking=ranking)
