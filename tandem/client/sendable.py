"""Checks what can be sent before it is sent, and names the field at fault."""

from tandem.client.arguments import checked_type, mistyped
from tandem.client.item import NewContent as NewContent
from tandem.client.item import NewItem as NewItem
from tandem.client.item import item_parts
from tandem.contract.content import (
    MAX_IMAGE_BYTES,
    MAX_LONG_TEXT_BYTES,
    Content,
    ImageContent,
    TextContent,
)
from tandem.contract.filtering.attribute_wire import attributes_from_proto, attributes_to_proto
from tandem.contract.identifiers import check_item_id, check_request_id
from tandem.contract.regions import RegionContent, checked_region_content
from tandem.contract.search.ingest import IncomingItem
from tandem.errors import (
    ContentMissing,
    ImageTooLarge,
    RequestMalformed,
    TextTooLong,
)

_CONTENT_REMEDY = (
    "send a str, the bytes of a JPEG, PNG or WebP file (path.read_bytes(), for example), or "
    "RegionContent"
)


def check_sendable(field: str, text: str) -> str:
    """Returns the text; raises RequestMalformed, which names the field, unless it is UTF-8.

    JSON and file names can put a lone surrogate into a Python str, which no message can carry.
    """
    checked_type(field, text, str, "send a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise RequestMalformed(
            why=f"{field} has a lone surrogate ({half}, half of an emoji for example) at "
            f"character {error.start + 1:,}, which UTF-8 cannot carry"
        ) from error
    return text


def checked_request_id(request_id: str) -> str:
    """Returns the request id; raises RequestIdInvalid or RequestMalformed."""
    return check_request_id(check_sendable("request_id", request_id))


def checked_content(content: object, field: str) -> Content:
    """Returns the content.

    Raises RequestMalformed for another type and for a text that no message can carry, TextTooLong
    and ImageTooLarge for a content over every server's limit, RegionsInvalid for regions that do
    not fit their counts, and ContentMissing for None.
    """
    if isinstance(content, RegionContent):
        return checked_region_content(content)
    if content is None:
        raise ContentMissing
    if not isinstance(content, str | bytes | bytearray | memoryview):
        raise mistyped(field, content, _CONTENT_REMEDY)
    if not isinstance(content, str):
        if len(content) > MAX_IMAGE_BYTES:
            raise ImageTooLarge(got=len(content), limit=MAX_IMAGE_BYTES, unit="bytes")
        return ImageContent(bytes(content))
    size_bytes = len(check_sendable(field, content).encode())
    if size_bytes > MAX_LONG_TEXT_BYTES:
        raise TextTooLong(got=size_bytes, limit=MAX_LONG_TEXT_BYTES, unit="bytes")
    return TextContent(content)


def checked_item(item: NewItem) -> IncomingItem:
    """Returns the item to send.

    Raises RequestMalformed for what is not an item, ItemIdInvalid, AttributeInvalid, or a content's
    error.
    """
    item_id, content, attributes = item_parts(item)
    check_item_id(item_id)
    checked = attributes_from_proto(attributes_to_proto(attributes))
    return IncomingItem(item_id, checked_content(content, "the content"), checked)
