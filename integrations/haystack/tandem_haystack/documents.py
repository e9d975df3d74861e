"""Converts between found items and Haystack's documents."""

from haystack import Document
from haystack.dataclasses import ByteStream

from tandem.client import FoundItem, ImageContent, SearchResult, StoredItem, TextContent


def found_documents(result: SearchResult) -> list[Document]:
    """Returns a document for each found item, best first.

    Scores are `FoundItem.relevance`: probabilities of a calibrated cross-encoder, similarities
    where it scored nothing.
    """
    return [_document(item, result) for item in result.items]


def scorable(document: Document) -> str | bytes | StoredItem:
    """Returns what is scored of a document: the stored image that it stands for, or its content."""
    item_id = document.meta.get("item_id")
    if item_id and document.meta.get("modality") == "image":
        return StoredItem(item_id)
    if document.content is None and document.blob is not None:
        return document.blob.data
    return document.content or ""


def _document(item: FoundItem, result: SearchResult) -> Document:
    content = item.content
    return Document(
        id=item.item_id,
        content=content.text if isinstance(content, TextContent) else None,
        blob=ByteStream(content.image_bytes, mime_type=_media_type(content.image_bytes))
        if isinstance(content, ImageContent)
        else None,
        score=item.relevance,
        meta=result.metadata(item),
    )


def _media_type(image_bytes: bytes) -> str | None:
    """Returns the type of a JPEG, PNG or WebP file by its first bytes."""
    if image_bytes.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if image_bytes.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if image_bytes[:4] == b"RIFF" and image_bytes[8:12] == b"WEBP":
        return "image/webp"
    return None
