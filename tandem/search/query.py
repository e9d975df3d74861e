"""Queries: what to search for, and how to rank it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tandem.contract.attribute_wire import CheckedFilter
from tandem.contract.content import Content, Modality, TextContent, Tokens, TruncationPolicy
from tandem.contract.fusion_method import FusionMethod
from tandem.contract.hybrid import HybridFusion
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_KEYWORDS_BYTES
from tandem.errors import QueryInvalid, RankingInvalid, TokensInvalid, TruncationPolicyInvalid
from tandem.search.depth import Depth
from tandem.stages.unit_length import check_unit_lengths

MAX_PART_COUNT = 16


_WEIGHTLESS = (None, FusionMethod.CROSS_ENCODER)


def usual_target(parts: Sequence[WeightedPart]) -> Modality:
    """Returns the default target, the modality that the parts do not have; raises QueryInvalid."""
    modalities = {
        part.source.modality for part in parts if isinstance(part.source, Content | EncodingSource)
    }
    if len(modalities) != 1:
        raise QueryInvalid(
            why="query_parts of both modalities, or of stored items, do not say what to find: set "
            "target_modality (tandem search --target-modality)"
        )
    return modalities.pop().other


def usual_keywords(parts: Sequence[WeightedPart]) -> str:
    """Returns the default words: the first ones of the query's texts, as many as there may be."""
    texts = (
        part.source.text
        for part in parts
        if isinstance(part.source, TextContent) and part.weight > 0
    )
    return " ".join(texts).encode()[:MAX_KEYWORDS_BYTES].decode(errors="ignore")


def _check(name: str, value: float | None, low: float) -> None:
    # `not low <= value`, since `value < low` would accept NaN.
    if value is not None and not low <= value <= 1.0:
        raise RankingInvalid(why=f"{name} is {value:g}; set {low:g} to 1")


@dataclass(frozen=True, slots=True)
class StoredItemSource:
    """Names an item of the searched index as the source of a query part.

    Raises ItemIdInvalid.
    """

    item_id: str

    def __post_init__(self) -> None:
        check_item_id(self.item_id)


@dataclass(frozen=True, slots=True, eq=False)
class EncodingSource:
    """Holds an encoding that the caller supplies: a float32 `embedding` [d] of unit length.

    Raises EmbeddingInvalid, TokensInvalid, QueryInvalid.
    """

    embedding: NDArray[np.float32]
    modality: Modality
    tokens: Tokens | None
    """For the cross-encoder; None if the caller has none."""
    fingerprint: str

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens.modality is not self.modality:
            raise TokensInvalid(
                why=f"they are of {self.tokens.modality.value}, not of {self.modality.value}"
            )
        if not self.fingerprint:
            raise QueryInvalid(why="a given encoding has no model_fingerprint; send one")
        check_unit_lengths(self.embedding[np.newaxis])


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPart:
    """Weighs one part of a query; a negative weight moves the query away from it."""

    source: Content | StoredItemSource | EncodingSource
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRule:
    """States how scores make the order, and which items are left out of it.

    Raises RankingInvalid for a number that is out of range, or has no use.
    """

    fusion: FusionMethod | None = None
    """None is the method of the model's authors; without one, CROSS_ENCODER."""
    cross_encoder_weight: float | None = None
    """0 to 1; for the sums only, where None is 0.5."""
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
        if self.cross_encoder_weight is not None and self.fusion in _WEIGHTLESS:
            raise RankingInvalid(
                why="cross_encoder_weight applies only to the fusion methods ADD, NORMALISED_ADD "
                "and LOGIT_ADD; drop it, or choose one of them"
            )

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

    Raises QueryInvalid for no words or too many, RankingInvalid for a weight that is out of range.
    """

    keywords: str
    fusion: HybridFusion = HybridFusion.RECIPROCAL_RANK
    keyword_weight: float = 0.5
    """0 to 1; the nearest items have the rest."""

    def __post_init__(self) -> None:
        _check("keyword_weight", self.keyword_weight, 0.0)
        if len(self.keywords.encode()) > MAX_KEYWORDS_BYTES:
            raise QueryInvalid(
                why=f"keywords have more than {MAX_KEYWORDS_BYTES:,} bytes; send fewer"
            )
        if not self.keywords:
            raise QueryInvalid(
                why="hybrid needs keywords, since no part of the query is a text; send some"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Describes one search; field names are the contract's.

    Raises IndexIdInvalid, QueryInvalid, TruncationPolicyInvalid, and RankingInvalid for options
    that contradict each other.
    """

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

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        _check_parts(self.parts, self.truncation_policy)
        if self.rerank_disabled:
            for name, is_set in {
                "fusion": self.ranking.fusion not in _WEIGHTLESS,
                "min_probability": self.ranking.min_probability is not None,
                "rerank_required": self.rerank_required,
            }.items():
                if is_set:
                    raise RankingInvalid(
                        why=f"{name} needs a rerank; drop it, or drop rerank_disabled"
                    )
        if self.neighbours_required and not self.neighbours_enabled:
            raise RankingInvalid(
                why="neighbours_required needs neighbours_enabled; set it, or drop "
                "neighbours_required"
            )
        if self.hybrid is not None and self.adaptive_depth:
            raise RankingInvalid(
                why="adaptive_depth was fitted to bi-encoder order; drop it, or drop hybrid"
            )

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
        ranking = replace(
            self.ranking,
            fusion=FusionMethod.CROSS_ENCODER,
            cross_encoder_weight=None,
            min_probability=None,
        )
        return replace(self, ranking=ranking)


def _check_parts(parts: Sequence[WeightedPart], policy: TruncationPolicy) -> None:
    if not 1 <= len(parts) <= MAX_PART_COUNT:
        raise QueryInvalid(why=f"it has {len(parts):,} parts; send 1 to {MAX_PART_COUNT}")
    if not all(math.isfinite(part.weight) for part in parts):
        raise QueryInvalid(why="a part's weight is not finite; send a number")
    if (
        policy is TruncationPolicy.BEST_WINDOW
        and (len(parts) > 1 or parts[0].weight < 0)
        and any(isinstance(part.source, TextContent) for part in parts)
    ):
        raise TruncationPolicyInvalid(
            policy=policy.value,
            why="BEST_WINDOW requires a query with exactly one text part of positive weight; "
            "send that, or another policy",
        )
