"""Defines queries and documents as callers write them, and checks them."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import Unpack

from tandem.client.arguments import (
    checked_elements,
    checked_member,
    checked_real,
    checked_type,
    mistyped,
)
from tandem.client.search_options import checked_options, takes_options
from tandem.client.sendable import NewContent, check_sendable, checked_content
from tandem.contract.content import LONG_TEXT_CHARACTERS, Modality, TruncationPolicy
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.search.documents import Document, DocumentQuery
from tandem.contract.search.query import (
    GivenEncoding,
    SearchOptions,
    SearchQuery,
    StoredItem,
    WeightedPart,
)
from tandem.errors import (
    ContentMissing,
    ImageTooLarge,
    KOutOfRange,
    QueryInvalid,
    RankingInvalid,
    RegionsInvalid,
    RequestMalformed,
    TandemError,
    TextTooLong,
    TruncationPolicyInvalid,
)

QuerySource = NewContent | StoredItem | GivenEncoding


@dataclass(frozen=True, slots=True)
class QueryPart:
    """One part of a query with its weight; a negative weight moves the query away from it."""

    source: QuerySource
    weight: float = 1.0


Query = QuerySource | Sequence[QueryPart]
"""A text, an image's bytes, a stored item, an encoding, or several weighted parts."""

NewDocument: TypeAlias = NewContent | StoredItem
"""A text, an image, regions, or a stored item."""


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
        """Takes the keywords of `Client.search`; a query that is refused fails only this search."""
        self.query: SearchQuery | TandemError
        try:
            self.query = search_query(query, index_id=index_id, **options)
        except (
            RequestMalformed,
            TextTooLong,
            ImageTooLarge,
            RegionsInvalid,
            ContentMissing,
            KOutOfRange,
            QueryInvalid,
            RankingInvalid,
            TruncationPolicyInvalid,
        ) as error:
            self.query = error


def search_query(query: Query, *, index_id: str, **options: Unpack[SearchOptions]) -> SearchQuery:
    """Returns the query; a missing or None option gets its default.

    Raises RequestMalformed for an option of a wrong type and a text that no message can carry,
    TextTooLong and ImageTooLarge for contents, IndexIdInvalid and ItemIdInvalid for ids,
    FilterInvalid, and what `SearchQuery.of` raises.
    """
    checked = checked_options(options)
    return SearchQuery.of(
        _parts(query), index_id=index_id, where=checked.pop("where", None), options=checked
    )


def _parts(query: Query) -> tuple[WeightedPart, ...]:
    if isinstance(query, list | tuple):
        return tuple(map(_part, query))
    if isinstance(query, StoredItem | GivenEncoding):
        return (_part(QueryPart(query)),)
    return (WeightedPart(checked_content(query, "the query")),)


def checked_searches(searches: Iterable[Search]) -> list[SearchQuery | TandemError]:
    """Returns the queries of a batch; raises RequestMalformed if they are not searches."""
    remedy = "send a list of Search"
    checked = list(checked_elements("searches", searches, remedy))
    for search in checked:
        checked_type("an element of searches", search, Search, remedy)
    return [search.query for search in checked]


def _part(part: QueryPart) -> WeightedPart:
    checked_type("an element of the query", part, QueryPart, "send QueryParts")
    weight = checked_real("a part's weight", part.weight)
    match part.source:
        case StoredItem() as stored:
            return WeightedPart(stored, weight)
        case GivenEncoding() as given:
            return WeightedPart(_encoding(given), weight)
        case content:
            return WeightedPart(checked_content(content, "a part of the query"), weight)


def _encoding(given: GivenEncoding) -> GivenEncoding:
    """Returns the encoding as it is sent; who searches by it checks its values."""
    try:
        embedding = array("f", given.embedding)
    except (TypeError, ValueError) as error:
        raise mistyped("an embedding", given.embedding, f"send floats ({error})") from error
    return GivenEncoding(
        embedding,
        check_sendable("a model fingerprint", given.model_fingerprint),
        checked_member("an encoding's modality", given.modality, Modality),
        given.tokens,
    )


def document_query(
    query: NewContent,
    documents: Sequence[NewDocument],
    index_id: str,
    truncation_policy: TruncationPolicy | str,
) -> DocumentQuery:
    """Returns the query; raises an error of a content or an id that cannot be sent."""
    policy = checked_member("truncation_policy", truncation_policy, TruncationPolicy)
    remedy = "send a list of texts, images and StoredItems"
    return DocumentQuery(
        checked_content(query, "the query"),
        [_document(each, policy) for each in checked_elements("documents", documents, remedy)],
        check_index_id(index_id) if index_id else "",
        policy,
    )


def _document(document: NewDocument, policy: TruncationPolicy) -> Document:
    if isinstance(document, StoredItem):
        return StoredItem(check_item_id(document.item_id))
    if isinstance(document, str) and policy is TruncationPolicy.TRUNCATE:
        document = document[:LONG_TEXT_CHARACTERS]
    return checked_content(document, "a document")
