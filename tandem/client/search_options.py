"""Defines the options of a search, and checks their types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypedDict, TypeVar, get_type_hints

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
    """Options of a search; the server has a default for each.

    - `target_modality`: The modality to find; by default images for a text and texts for an
      image.
    - `all_modalities_included`: Finds both modalities, and interleaves their rankings, the
      target first.
    - `retrieve_k`: The number of items that the bi-encoder retrieves.
    - `rerank_k`: The number of those that the cross-encoder reranks.
    - `return_n`: The number of items returned.
    - `rerank_disabled`: Keeps bi-encoder order: no cross-encoder.
    - `rerank_required`: Raises RerankUnavailable unless all rerank_k items were reranked.
    - `adaptive_depth`: Stops reranking, before rerank_k, once the first item is unlikely to
      change.
    - `neighbours_enabled`: Reorders the first items by their neighbours, if a neighbour model
      (LeaPRR) is served.
    - `neighbours_required`: Raises NeighboursUnavailable unless that was done with the items of
      all shards.
    - `hybrid`: Finds items by words too, and fuses both lists; each of the next three options
      sets it.
    - `keywords`: The words of a hybrid search; by default the query's texts.
    - `hybrid_fusion`: How to fuse both lists; by default RECIPROCAL_RANK.
    - `keyword_weight`: The weight of the items that the words found, 0 to 1; by default 0.5.
    - `fusion`: How to combine the scores; by default the cross-encoder's alone.
    - `cross_encoder_weight`: The cross-encoder's weight for ADD, NORMALISED_ADD and LOGIT_ADD,
      0 to 1.
    - `min_probability`: Leaves out items with a lower match probability, and unscored ones.
    - `relevance_weight`: Lambda of maximal marginal relevance: 1 is relevance only, 0 diversity
      only.
    - `duplicate_similarity`: Keeps only the best of items that are at least this similar.
    - `explained`: Returns an explanation of each item's rank.
    - `truncation_policy`: What to do with a text over the model's limit; by default it is
      refused.
    - `content_included`: Returns the items' contents and attributes.
    - `attributes_included`: Returns the items' attributes, without their contents.
    - `where`: Finds only items that match: a filter, or its text, such as "style = noto".
    - `consistency_tokens`: Tokens of earlier writes that the search must see.
    - `full_coverage_required`: Raises ShardsMissing if a shard does not answer.
    """

    target_modality: Modality | str | None
    all_modalities_included: bool
    retrieve_k: int | None
    rerank_k: int | None
    return_n: int | None
    rerank_disabled: bool
    rerank_required: bool
    adaptive_depth: bool
    neighbours_enabled: bool
    neighbours_required: bool
    hybrid: bool
    keywords: str | None
    hybrid_fusion: HybridFusion | str | None
    keyword_weight: float | None
    fusion: FusionMethod | str | None
    cross_encoder_weight: float | None
    min_probability: float | None
    relevance_weight: float | None
    duplicate_similarity: float | None
    explained: bool
    truncation_policy: TruncationPolicy | str | None
    content_included: bool
    attributes_included: bool
    where: Filter | str | None
    consistency_tokens: Iterable[str]
    full_coverage_required: bool


_Call = TypeVar("_Call", bound=Callable[..., Any])


def takes_options(call: _Call) -> _Call:
    """Spells SearchOptions out in a call's signature and docstring, for help() and notebooks."""
    signature, hints = inspect.signature(call), get_type_hints(SearchOptions)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=_default(name)
        )
        for name, hint in hints.items()
    ]
    shown: Any = call
    shown.__signature__ = signature.replace(parameters=[*own, *keywords])
    shown.__annotations__ = call.__annotations__ | hints
    options = inspect.getdoc(SearchOptions) or ""
    shown.__doc__ = f"{inspect.getdoc(call)}\n\n{options}"
    return call


def _default(name: str) -> object:
    return False if name in _FLAGS else () if name == "consistency_tokens" else None


def checked_options(options: SearchOptions) -> dict[str, Any]:
    """Returns the options that are set, with enums for their names.

    Raises RequestMalformed for the first of a wrong type, with what to send, and TypeError for a
    name that SearchOptions does not have.
    """
    if unknown := [name for name in options if name not in _CHECKS]:
        raise TypeError(f"a search has no option {unknown[0]!r}; SearchOptions lists those it has")
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
