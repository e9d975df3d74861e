"""Defines queries and search options, and builds their messages."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from typing_extensions import Unpack

from tandem.client.arguments import (
    checked_elements,
    checked_member,
    checked_real,
    checked_type,
    mistyped,
)
from tandem.client.search_options import SearchOptions as SearchOptions
from tandem.client.search_options import checked_count, set_options, takes_options
from tandem.client.sendable import NewContent, check_sendable, content_to_proto
from tandem.contract.content import Modality
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.errors import (
    ContentMissing,
    ImageTooLarge,
    RegionsInvalid,
    RequestMalformed,
    TandemError,
    TextTooLong,
)
from tandem.v1 import content_pb2, search_service_pb2

_MODALITIES = {
    Modality.TEXT: content_pb2.MODALITY_TEXT,
    Modality.IMAGE: content_pb2.MODALITY_IMAGE,
}


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A query by an item of the searched index."""

    item_id: str


@dataclass(frozen=True, slots=True)
class GivenEncoding:
    """A query by an encoding that the caller supplies."""

    embedding: Sequence[float]
    """A unit-length vector."""
    model_fingerprint: str
    """The fingerprint of the model that made it."""
    modality: Modality
    """The modality of the encoded content."""
    tokens: content_pb2.ContentTokens | None = None
    """Tokens from EncodeContents; without them nothing is reranked."""


QuerySource = NewContent | StoredItem | GivenEncoding


@dataclass(frozen=True, slots=True)
class QueryPart:
    """One part of a query with its weight; a negative weight moves the query away from it."""

    source: QuerySource
    weight: float = 1.0


Query = QuerySource | Sequence[QueryPart]
"""A text, an image's bytes, a stored item, an encoding, or several weighted parts."""


class Search:
    """One search of a batch: a query with its options."""

    @takes_options
    def __init__(
        self,
        query: Query,
        *,
        index_id: str,
        **options: Unpack[SearchOptions],
    ) -> None:
        """Takes the keywords of `Client.search`; a bad content fails only this search."""
        self.error: TandemError | None = None
        try:
            self.request = search_request(query, index_id=index_id, **options)
        except (
            RequestMalformed,
            TextTooLong,
            ImageTooLarge,
            RegionsInvalid,
            ContentMissing,
        ) as error:
            # A search without a query takes its place; the server refuses only that one.
            self.error = error
            self.request = search_service_pb2.SearchItemsRequest(index_id=check_index_id(index_id))


def search_request(
    query: Query, *, index_id: str, **options: Unpack[SearchOptions]
) -> search_service_pb2.SearchItemsRequest:
    """Returns the message; a missing or None option gets the server's default.

    Raises RequestMalformed for an option of a wrong type and a text that no message can carry,
    TextTooLong and ImageTooLarge for contents, IndexIdInvalid and ItemIdInvalid for ids,
    KOutOfRange and FilterInvalid.
    """
    request = search_service_pb2.SearchItemsRequest(index_id=check_index_id(index_id))
    set_options(request, options)
    if isinstance(query, StoredItem | GivenEncoding):
        request.query_parts.append(_part(QueryPart(query)))
    elif isinstance(query, list | tuple):
        request.query_parts.extend(map(_part, query))
    else:
        request.query.CopyFrom(content_to_proto(query, "the query"))
    return request


def checked_searches(searches: Iterable[Search]) -> list[Search]:
    """Returns the searches of a batch; raises RequestMalformed if they are not searches."""
    remedy = "send a list of Search"
    checked = list(checked_elements("searches", searches, remedy))
    for search in checked:
        checked_type("an element of searches", search, Search, remedy)
    return checked


def page_request(
    cursor: bytes,
    *,
    index_id: str,
    return_n: int | None,
    content_included: bool,
    attributes_included: bool = False,
) -> search_service_pb2.SearchItemsRequest:
    """Returns the message for the next page of an answer."""
    return search_service_pb2.SearchItemsRequest(
        index_id=check_index_id(index_id),
        cursor=checked_type("cursor", cursor, bytes, "send the next_cursor of an answer"),
        return_n=None if return_n is None else checked_count("return_n", return_n),
        content_included=content_included,
        attributes_included=attributes_included,
    )


def _part(part: QueryPart) -> search_service_pb2.QueryPart:
    checked_type("an element of the query", part, QueryPart, "send QueryParts")
    message = search_service_pb2.QueryPart(weight=checked_real("a part's weight", part.weight))
    match part.source:
        case StoredItem(item_id):
            message.item_id = check_item_id(item_id)
        case GivenEncoding() as given:
            message.encoding.embedding.values = _float32_bytes(given.embedding)
            message.encoding.model_fingerprint = check_sendable(
                "a model fingerprint", given.model_fingerprint
            )
            modality = checked_member("an encoding's modality", given.modality, Modality)
            message.encoding.modality = _MODALITIES[modality]
            if given.tokens is not None:
                message.encoding.tokens.CopyFrom(given.tokens)
        case content:
            message.content.CopyFrom(content_to_proto(content, "a part of the query"))
    return message


def _float32_bytes(values: Sequence[float]) -> bytes:
    try:
        floats = array("f", values)
    except (TypeError, ValueError) as error:
        raise mistyped("an embedding", values, f"send floats ({error})") from error
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()
