"""Defines the options of a search, checks them and puts them into the message."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, TypedDict, TypeVar, get_args, get_type_hints

from tandem.client.arguments import (
    checked_elements,
    checked_flag,
    checked_integer,
    checked_member,
    checked_real,
    checked_type,
)
from tandem.client.sendable import check_sendable
from tandem.contract.attribute_wire import filter_to_proto
from tandem.contract.content import Modality, TruncationPolicy
from tandem.contract.filter_expression import parse_filter
from tandem.contract.filters import AllOf, AnyOf, Exists, Filter, InRange, Not, OneOf, StartsWith
from tandem.contract.fusion_method import FusionMethod
from tandem.contract.hybrid import HybridFusion
from tandem.contract.limits import MAX_RERANK_K, MAX_RETRIEVE_K
from tandem.errors import KOutOfRange
from tandem.v1 import content_pb2, search_service_pb2


class SearchOptions(TypedDict, total=False):
    """Options of a search; the server has a default for each."""

    target_modality: Annotated[
        Modality | str | None,
        "Modality to find; by default images for a text and texts for an image",
    ]
    all_modalities_included: Annotated[
        bool, "Find both modalities, and interleave their rankings, the target first"
    ]
    retrieve_k: Annotated[int | None, "Number of items that the bi-encoder retrieves"]
    rerank_k: Annotated[int | None, "Number of those that the cross-encoder reranks"]
    return_n: Annotated[int | None, "Number of items returned"]
    rerank_disabled: Annotated[bool, "Keep bi-encoder order: no cross-encoder"]
    rerank_required: Annotated[bool, "Fail unless all of rerank_k were reranked: RerankUnavailable"]
    adaptive_depth: Annotated[
        bool, "Stop reranking, before rerank_k, once the first item is unlikely to change"
    ]
    neighbours_enabled: Annotated[
        bool, "Reorder the first items by their neighbours, if a neighbour model (LeaPRR) is served"
    ]
    neighbours_required: Annotated[
        bool, "Fail unless that is done with the items of all shards: NeighboursUnavailable"
    ]
    hybrid: Annotated[
        bool, "Find items by words too, and fuse both lists; the next three options imply it"
    ]
    keywords: Annotated[str | None, "Words of a hybrid search; by default the query's texts"]
    hybrid_fusion: Annotated[
        HybridFusion | str | None, "How to fuse both lists; by default RECIPROCAL_RANK"
    ]
    keyword_weight: Annotated[
        float | None, "Weight of the items that the words found, 0 to 1; by default 0.5"
    ]
    fusion: Annotated[
        FusionMethod | str | None,
        "How to combine the scores of both models; by default the cross-encoder's alone",
    ]
    cross_encoder_weight: Annotated[
        float | None, "Weight of the cross-encoder in ADD, NORMALISED_ADD and LOGIT_ADD, 0 to 1"
    ]
    min_probability: Annotated[
        float | None, "Leave out items with a lower match probability, and unscored ones"
    ]
    relevance_weight: Annotated[
        float | None, "Lambda of maximal marginal relevance: 1 is relevance only, 0 diversity only"
    ]
    duplicate_similarity: Annotated[
        float | None, "Keep only the best of items that are at least this similar"
    ]
    explained: Annotated[bool, "Return an explanation of each item's rank"]
    truncation_policy: Annotated[
        TruncationPolicy | str | None,
        "What to do with a text over the model's limit; by default it is refused",
    ]
    content_included: Annotated[bool, "Return the items' contents and attributes"]
    attributes_included: Annotated[bool, "Return the items' attributes, without their contents"]
    where: Annotated[
        Filter | str | None,
        'Find only items that match: a filter, or its text, such as "style = noto"',
    ]
    consistency_tokens: Annotated[
        Iterable[str], "Tokens of earlier writes that the search must see"
    ]
    full_coverage_required: Annotated[bool, "Fail if a shard does not answer: ShardsMissing"]


HINTS = get_type_hints(SearchOptions, include_extras=True)
"""The type and the sentence of each option, by its name."""

_Call = TypeVar("_Call", bound=Callable[..., Any])


def takes_options(call: _Call) -> _Call:
    """Spells SearchOptions out in a call's signature and docstring, for help() and notebooks."""
    signature, hints = inspect.signature(call), get_type_hints(SearchOptions)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=_default(name, hint)
        )
        for name, hint in hints.items()
    ]
    shown: Any = call
    shown.__signature__ = signature.replace(parameters=[*own, *keywords])
    shown.__annotations__ = call.__annotations__ | hints
    sentences = [f"- `{name}`: {hint.__metadata__[0]}." for name, hint in HINTS.items()]
    shown.__doc__ = "\n".join([f"{inspect.getdoc(call)}\n\n{SearchOptions.__doc__}\n", *sentences])
    return call


def set_options(request: search_service_pb2.SearchItemsRequest, options: SearchOptions) -> None:
    """Puts the options that are given into the message.

    Raises RequestMalformed for one of a wrong type, with what to send, KOutOfRange, FilterInvalid,
    and TypeError for a name that SearchOptions does not have.
    """
    if unknown := [name for name in options if name not in _CHECKS]:
        raise TypeError(f"a search has no option {unknown[0]!r}; SearchOptions lists those it has")
    for name, given in options.items():
        if given is None:
            continue
        value: Any = _CHECKS[name](name, given)
        # An empty message is not an unset one, so each is set by its first field alone.
        if name in _WITHIN:
            part, name = _WITHIN[name]
            setattr(getattr(request, part), name, value)
        elif name == "where":
            request.filter.CopyFrom(value)
        elif name == "consistency_tokens":
            request.consistency_tokens.extend(value)
        elif name != "hybrid":
            setattr(request, name, value)
        elif value:
            request.hybrid.SetInParent()
    if request.HasField("fusion") and not request.fusion.method:
        request.fusion.method = search_service_pb2.FUSION_METHOD_CROSS_ENCODER


def checked_count(name: str, value: object) -> int:
    """Returns the number; raises KOutOfRange for one that no message can carry.

    The server checks the others, because its limits may grow.
    """
    count = checked_integer(name, value)
    if not -(2**31) <= count < 2**31:
        high = MAX_RERANK_K if name == "rerank_k" else MAX_RETRIEVE_K
        raise KOutOfRange(name=name, got=count, low=1, high=high)
    return count


def _default(name: str, hint: object) -> object:
    return False if hint is bool else () if name == "consistency_tokens" else None


def _filter(name: str, value: Any) -> object:  # noqa: ANN401
    kinds = (str, AllOf, AnyOf, Not, OneOf, InRange, StartsWith, Exists)
    checked_type(name, value, kinds, "send a filter, or its text")
    return filter_to_proto(parse_filter(value) if isinstance(value, str) else value)


def _tokens(name: str, value: Iterable[Any]) -> list[str]:
    tokens = tuple(checked_elements(name, value, "send a list of consistency tokens"))
    for token in tokens:
        checked_type("a consistency token", token, str, "send the token of an earlier write")
    return [check_sendable("a consistency token", token) for token in tokens]


def _number(name: str, value: object, kind: type[enum.Enum]) -> int:
    member = checked_member(name, value, kind)
    names, prefix = _ENUMS[kind]
    number: int = names.Value(f"{prefix}_{member.name}")
    return number


def _check(hint: Any) -> Callable[[str, Any], object]:  # noqa: ANN401
    """Returns what checks a value of this type, and gives what the message carries."""
    first = (get_args(hint) or (hint,))[0]
    if first in _ENUMS:
        return partial(_number, kind=first)
    return {bool: checked_flag, int: checked_count, float: checked_real}.get(first, check_sendable)


_ENUMS: dict[type[enum.Enum], tuple[Any, str]] = {
    Modality: (content_pb2.Modality, "MODALITY"),
    TruncationPolicy: (content_pb2.TruncationPolicy, "TRUNCATION_POLICY"),
    FusionMethod: (search_service_pb2.FusionMethod, "FUSION_METHOD"),
    HybridFusion: (search_service_pb2.HybridFusion, "HYBRID_FUSION"),
}
_WITHIN = {
    "keywords": ("hybrid", "keywords"),
    "hybrid_fusion": ("hybrid", "fusion"),
    "keyword_weight": ("hybrid", "keyword_weight"),
    "fusion": ("fusion", "method"),
    "cross_encoder_weight": ("fusion", "cross_encoder_weight"),
    "relevance_weight": ("diversity", "relevance_weight"),
    "duplicate_similarity": ("diversity", "duplicate_similarity"),
}
"""The options whose field is in a part of the message, by its name there."""
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **{name: _check(hint) for name, hint in get_type_hints(SearchOptions).items()},
    "where": _filter,
    "consistency_tokens": _tokens,
}
