"""What a search is given: a query in any of its forms, and what is asked of the answer."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from tandem.client.sendable import NewContent, check_sendable, content_to_proto
from tandem.contract.attribute_wire import filter_to_proto
from tandem.contract.content import Modality, TruncationPolicy
from tandem.contract.filter_expression import parse_filter
from tandem.contract.filters import Filter
from tandem.contract.fusion_method import FusionMethod
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_RERANK_K, MAX_RETRIEVE_K
from tandem.errors import (
    ContentMissing,
    ImageTooLarge,
    KOutOfRange,
    RequestMalformed,
    TandemError,
    TextTooLong,
)
from tandem.v1 import content_pb2, search_service_pb2

_MOST = {"retrieve_k": MAX_RETRIEVE_K, "rerank_k": MAX_RERANK_K, "return_n": MAX_RETRIEVE_K}

_MODALITIES = {
    None: content_pb2.MODALITY_UNSPECIFIED,
    Modality.TEXT: content_pb2.MODALITY_TEXT,
    Modality.IMAGE: content_pb2.MODALITY_IMAGE,
}


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item of the searched index, as a query."""

    item_id: str


@dataclass(frozen=True, slots=True)
class GivenEncoding:
    """An encoding that the caller has, as a query: no content is encoded for it."""

    embedding: Sequence[float]
    """Of unit length."""
    model_fingerprint: str
    """The model that made it, as answers name it."""
    modality: Modality
    """What it was made of."""
    tokens: content_pb2.ContentTokens | None = None
    """From EncodeContents; without them nothing is reranked."""


QuerySource = NewContent | StoredItem | GivenEncoding


@dataclass(frozen=True, slots=True)
class QueryPart:
    """One of the things a query is made of, and its share; a negative one turns away from it."""

    source: QuerySource
    weight: float = 1.0


Query = QuerySource | Sequence[QueryPart]
"""A text, a picture's bytes, a stored item, an encoding, or several of these by weight."""


class SearchOptions(TypedDict, total=False):
    """What may be asked of a search beside its query; the server has a default for each."""

    target_modality: Modality | None
    """What to find; where it is not said, images by text and texts by image."""
    all_modalities_included: bool
    """Finds the other modality too; both rankings are interleaved, the target first."""
    retrieve_k: int | None
    """Items the bi-encoder retrieves."""
    rerank_k: int | None
    """Of these, items the cross-encoder reranks."""
    return_n: int | None
    """Items returned."""
    rerank_disabled: bool
    """Leaves the bi-encoder's order as it is."""
    rerank_required: bool
    """Refuses an answer that is not reranked to its full rerank_k: RerankUnavailable."""
    adaptive_depth: bool
    """Reranks as far as the model's rule finds worth it, up to rerank_k."""
    fusion: FusionMethod | None
    """How the two models' scores make the order; the cross-encoder alone unless told."""
    cross_encoder_weight: float | None
    """0 to 1, of the two sums."""
    min_probability: float | None
    """Leaves out what is less probable, or was not scored."""
    relevance_weight: float | None
    """Maximal marginal relevance: 1 is closeness alone, 0 variety alone."""
    duplicate_similarity: float | None
    """Of items at least this similar, only the best stays."""
    explained: bool
    """Returns with each item how it came to its place."""
    truncation_policy: TruncationPolicy | None
    """For a text over the model's limit; it is refused unless told."""
    content_included: bool
    """Returns the items' contents and attributes with them."""
    where: Filter | str | None
    """Finds only items that match: a filter, or its text, such as "style = noto"."""
    consistency_tokens: Iterable[str]
    """From outcomes and removals: what those wrote is seen."""
    full_coverage_required: bool
    """Refuses an answer without some shard's items: ShardsMissing."""


class Search:
    """One search of several: a query with its options."""

    def __init__(self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]) -> None:
        """As Client.search; a content that cannot be sent is this search's outcome alone."""
        self.error: TandemError | None = None
        try:
            self.request = search_request(query, index_id=index_id, **options)
        except (RequestMalformed, TextTooLong, ImageTooLarge, ContentMissing) as error:
            # In its place goes a search without a query, which the server refuses alone.
            self.error = error
            self.request = search_service_pb2.SearchItemsRequest(index_id=check_index_id(index_id))


def search_request(
    query: Query, *, index_id: str, **options: Unpack[SearchOptions]
) -> search_service_pb2.SearchItemsRequest:
    """Returns the message; what is not given, or None, is left to the server's default.

    Raises RequestMalformed for a text that no message can carry, TextTooLong and ImageTooLarge for
    contents, IndexIdInvalid and ItemIdInvalid for ids, KOutOfRange, and FilterInvalid for a filter
    that the server would not take.
    """
    tokens = options.get("consistency_tokens", ())
    tokens = tuple(check_sendable("a consistency token", token) for token in tokens)
    where = options.get("where")
    if isinstance(where, str):
        where = parse_filter(where)
    policy = options.get("truncation_policy")
    request = search_service_pb2.SearchItemsRequest(
        index_id=check_index_id(index_id),
        target_modality=_MODALITIES[options.get("target_modality")],
        all_modalities_included=options.get("all_modalities_included", False),
        retrieve_k=_count("retrieve_k", options.get("retrieve_k")),
        rerank_k=_count("rerank_k", options.get("rerank_k")),
        return_n=_count("return_n", options.get("return_n")),
        rerank_disabled=options.get("rerank_disabled", False),
        rerank_required=options.get("rerank_required", False),
        adaptive_depth=options.get("adaptive_depth", False),
        min_probability=options.get("min_probability"),
        explained=options.get("explained", False),
        truncation_policy=None if policy is None else f"TRUNCATION_POLICY_{policy.name}",
        content_included=options.get("content_included", False),
        filter=filter_to_proto(where) if where is not None else None,
        consistency_tokens=tokens,
        full_coverage_required=options.get("full_coverage_required", False),
    )
    _set_ranking(request, options)
    if isinstance(query, str | bytes):
        request.query.CopyFrom(content_to_proto(query, "the query"))
    elif isinstance(query, StoredItem | GivenEncoding):
        request.query_parts.append(_part(QueryPart(query)))
    else:
        request.query_parts.extend(map(_part, query))
    return request


def page_request(
    cursor: bytes, *, index_id: str, return_n: int | None, content_included: bool
) -> search_service_pb2.SearchItemsRequest:
    """Returns the message that asks for the items after those of an answer."""
    return search_service_pb2.SearchItemsRequest(
        index_id=check_index_id(index_id),
        cursor=cursor,
        return_n=_count("return_n", return_n),
        content_included=content_included,
    )


def _count(name: str, value: int | None) -> int | None:
    """Returns the number as it is; raises KOutOfRange for one that no message can carry.

    The others are the server's to judge: it may come to take more.
    """
    if value is not None and not -(2**31) <= value < 2**31:
        raise KOutOfRange(name=name, got=value, low=1, high=_MOST[name])
    return value


def _set_ranking(request: search_service_pb2.SearchItemsRequest, options: SearchOptions) -> None:
    """Sets what is given of fusion and diversity: an unset message is not an empty one."""
    fusion, weight = options.get("fusion"), options.get("cross_encoder_weight")
    if fusion is not None or weight is not None:
        method = FusionMethod.CROSS_ENCODER if fusion is None else fusion
        request.fusion.MergeFrom(
            search_service_pb2.Fusion(
                method=f"FUSION_METHOD_{method.name}", cross_encoder_weight=weight
            )
        )
    relevance, duplicate = options.get("relevance_weight"), options.get("duplicate_similarity")
    if relevance is not None:
        request.diversity.relevance_weight = relevance
    if duplicate is not None:
        request.diversity.duplicate_similarity = duplicate


def _part(part: QueryPart) -> search_service_pb2.QueryPart:
    message = search_service_pb2.QueryPart(weight=part.weight)
    match part.source:
        case StoredItem(item_id):
            message.item_id = check_item_id(item_id)
        case GivenEncoding() as given:
            message.encoding.embedding.values = _float32_bytes(given.embedding)
            message.encoding.model_fingerprint = check_sendable(
                "a model fingerprint", given.model_fingerprint
            )
            message.encoding.modality = _MODALITIES[given.modality]
            if given.tokens is not None:
                message.encoding.tokens.CopyFrom(given.tokens)
        case content:
            message.content.CopyFrom(content_to_proto(content, "a part of the query"))
    return message


def _float32_bytes(values: Sequence[float]) -> bytes:
    floats = array("f", values)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()
