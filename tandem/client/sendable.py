"""Checks what can be sent before it is sent, and names the field at fault."""

from __future__ import annotations

from tandem.client.arguments import checked_type, mistyped
from tandem.client.item import NewContent as NewContent
from tandem.client.item import NewItem as NewItem
from tandem.client.item import item_parts
from tandem.contract.attribute_wire import attributes_from_proto, attributes_to_proto
from tandem.contract.attributes import check_attributes
from tandem.contract.content import MAX_IMAGE_BYTES, MAX_LONG_TEXT_BYTES
from tandem.contract.identifiers import check_item_id, check_request_id
from tandem.contract.region_wire import regions_to_proto
from tandem.contract.regions import RegionContent
from tandem.errors import (
    ContentMissing,
    ImageTooLarge,
    RequestMalformed,
    TextTooLong,
)
from tandem.v1 import content_pb2, index_service_pb2

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


def content_to_proto(content: object, field: str) -> content_pb2.Content:
    """Returns the message.

    Raises RequestMalformed for another type and for a text that no message can carry, TextTooLong
    and ImageTooLarge for a content over every server's limit, RegionsInvalid for regions that do
    not fit their counts, and ContentMissing for None.
    """
    if isinstance(content, RegionContent):
        return content_pb2.Content(regions=regions_to_proto(content))
    if content is None:
        raise ContentMissing
    if not isinstance(content, str | bytes | bytearray | memoryview):
        raise mistyped(field, content, _CONTENT_REMEDY)
    if not isinstance(content, str):
        if len(content) > MAX_IMAGE_BYTES:
            raise ImageTooLarge(got=len(content), limit=MAX_IMAGE_BYTES, unit="bytes")
        return content_pb2.Content(image=bytes(content))
    size_bytes = len(check_sendable(field, content).encode())
    if size_bytes > MAX_LONG_TEXT_BYTES:
        raise TextTooLong(got=size_bytes, limit=MAX_LONG_TEXT_BYTES, unit="bytes")
    return content_pb2.Content(text=content)


def item_to_proto(item: NewItem) -> index_service_pb2.Item:
    """Returns the message.

    Raises RequestMalformed for what is not an item, ItemIdInvalid, AttributeInvalid, or a content's
    error.
    """
    item_id, content, attributes = item_parts(item)
    check_item_id(item_id)
    messages = attributes_to_proto(attributes)
    check_attributes(attributes_from_proto(messages))
    return index_service_pb2.Item(
        item_id=item_id, content=content_to_proto(content, "the content"), attributes=messages
    )
