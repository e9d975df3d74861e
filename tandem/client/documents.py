"""Names the documents that callers score, and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tandem.client.arguments import checked_elements, checked_member
from tandem.client.item import NewContent
from tandem.client.sendable import checked_content
from tandem.contract.content import TruncationPolicy
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.search.documents import Document, DocumentQuery
from tandem.contract.search.query import StoredItem

NewDocument: TypeAlias = NewContent | StoredItem
"""A text, an image, regions, or a stored item."""

_DOCUMENTS_REMEDY = "send a list of texts, images and StoredItems"


def document_query(
    query: NewContent,
    documents: Sequence[NewDocument],
    index_id: str,
    truncation_policy: TruncationPolicy | str,
) -> DocumentQuery:
    """Returns the query; raises an error of a content or an id that cannot be sent."""
    policy = checked_member("truncation_policy", truncation_policy, TruncationPolicy)
    return DocumentQuery(
        checked_content(query, "the query"),
        [_document(each) for each in checked_elements("documents", documents, _DOCUMENTS_REMEDY)],
        check_index_id(index_id) if index_id else "",
        policy,
    )


def _document(document: NewDocument) -> Document:
    if isinstance(document, StoredItem):
        return StoredItem(check_item_id(document.item_id))
    return checked_content(document, "a document")
