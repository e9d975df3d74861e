"""Converts between found items and LangChain's documents."""

import base64

from langchain_core.documents import Document

from tandem.client import FoundItem, ImageContent, SearchResult, StoredItem, TextContent


def found_documents(result: SearchResult, text_attribute: str) -> list[Document]:
    """Returns a document for each found item, best first."""
    return [_document(item, result, text_attribute) for item in result.items]


def scorable(document: Document) -> str | StoredItem:
    """Returns what is scored of a document: the stored image that it stands for, or its text."""
    item_id = document.metadata.get("item_id")
    if item_id and document.metadata.get("modality") == "image":
        return StoredItem(item_id)
    return document.page_content


def _document(item: FoundItem, result: SearchResult, text_attribute: str) -> Document:
    metadata = result.metadata(item) | {"score": item.score}
    if isinstance(item.content, TextContent):
        return Document(item.content.text, id=item.item_id, metadata=metadata)
    if isinstance(item.content, ImageContent):
        metadata["image"] = base64.b64encode(item.content.image_bytes).decode()
    # An image has no text but what was stored with it.
    text = item.attributes.get(text_attribute, "") if text_attribute else ""
    lines = text if isinstance(text, tuple) else (str(text),)
    return Document("\n".join(lines), id=item.item_id, metadata=metadata)
