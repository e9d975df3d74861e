"""Defines the options of a search, and checks their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypedDict

from tandem.client.arguments import (
    checked_elements,
    checked_flag,
    checked_integer,
    checked_member,
    checked_real,
    checked_type,
)
from tandem.contract.content import Modality, TruncationPolicy
from tandem.contract.filters import AllOf, AnyOf, Exists, Filter, InRange, Not, OneOf, StartsWith
from tandem.contract.fusion_method import FusionMethod
from tandem.contract.hybrid import HybridFusion


class SearchOptions(TypedDict, total=False):
    """Options of a search; the server has a default for each."""

    target_modality: Modality | str | None
    """The modality to find; by default images for a text and texts for an image."""
    all_modalities_included: bool
    """Finds both modalities, and interleaves their rankings, the target first."""
    retrieve_k: int | None
    """The number of items that the bi-encoder retrieves."""
    rerank_k: int | None
    """The number of those that the cross-encoder reranks."""
    return_n: int | None
    """The number of items returned."""
    rerank_disabled: bool
    """Keeps bi-encoder order: no cross-encoder."""
    rerank_required: bool
    """Raises RerankUnavailable unless all rerank_k items were reranked."""
    adaptive_depth: bool
    """Stops reranking, before rerank_k, once the first item is unlikely to change."""
    neighbours_enabled: bool
    """Reorders the first items by their neighbours, if a neighbour model (LeaPRR) is served."""
    neighbours_required: bool
    """Raises NeighboursUnavailable unless that was done with the items of all shards."""
    hybrid: bool
    """Finds items by words too, and fuses both lists; each of the next three options sets it."""
    keywords: str | None
    """The words of a hybrid search; by default the query's texts."""
    hybrid_fusion: HybridFusion | str | None
    """How to fuse both lists; by default RECIPROCAL_RANK."""
    keyword_weight: float | None
    """The weight of the items that the words found, 0 to 1; by default 0.5."""
    fusion: FusionMethod | str | None
    """How to combine the scores; by default the cross-encoder's alone."""
    cross_encoder_weight: float | None
    """The cross-encoder's weight for ADD, NORMALISED_ADD and LOGIT_ADD, 0 to 1."""
    min_probability: float | None
    """Leaves out items with a lower match probability, and unscored ones."""
    relevance_weight: float | None
    """Lambda of maximal marginal relevance: 1 is relevance only, 0 diversity only."""
    duplicate_similarity: float | None
    """Keeps only the best of items that are at least this similar."""
    explained: bool
    """Returns an explanation of each item's rank."""
    truncation_policy: TruncationPolicy | str | None
    """What to do with a text over the model's limit; by default it is refused."""
    content_included: bool
    """Returns the items' contents and attributes."""
    attributes_included: bool
    """Returns the items' attributes, without their contents."""
    where: Filter | str | None
    """Finds only items that match: a filter, or its text, such as "style = noto"."""
    consistency_tokens: Iterable[str]
    """Tokens of earlier writes that the search must see."""
    full_coverage_required: bool
    """Raises ShardsMissing if a shard does not answer."""


def checked_options(options: SearchOptions) -> dict[str, Any]:
    """Returns the options that are set, with enums for their names.

    Raises RequestMalformed for the first of a wrong type, with what to send.
    """
    return {
        name: _CHECKS[name](name, value) for name, value in options.items() if value is not None
    }


def _checked_where(name: str, value: object) -> object:
    kinds = (str, AllOf, AnyOf, Not, OneOf, InRange, StartsWith, Exists)
    return checked_type(name, value, kinds, "send a filter, or its text")


def _checked_tokens(name: str, value: Iterable[object]) -> tuple[object, ...]:
    tokens = tuple(checked_elements(name, value, "send a list of consistency tokens"))
    for token in tokens:
        checked_type("a consistency token", token, str, "send the token of an earlier write")
    return tokens


_FLAGS = (
    "all_modalities_included",
    "rerank_disabled",
    "rerank_required",
    "adaptive_depth",
    "neighbours_enabled",
    "neighbours_required",
    "hybrid",
    "explained",
    "content_included",
    "attributes_included",
    "full_coverage_required",
)
_REALS = (
    "keyword_weight",
    "cross_encoder_weight",
    "min_probability",
    "relevance_weight",
    "duplicate_similarity",
)
_CHECKS: dict[str, Callable[[str, Any], object]] = {
    **dict.fromkeys(_FLAGS, checked_flag),
    **dict.fromkeys(_REALS, checked_real),
    **dict.fromkeys(("retrieve_k", "rerank_k", "return_n"), checked_integer),
    "target_modality": partial(checked_member, kind=Modality),
    "truncation_policy": partial(checked_member, kind=TruncationPolicy),
    "fusion": partial(checked_member, kind=FusionMethod),
    "hybrid_fusion": partial(checked_member, kind=HybridFusion),
    "keywords": partial(checked_type, kinds=str, remedy="send a text"),
    "where": _checked_where,
    "consistency_tokens": _checked_tokens,
}
