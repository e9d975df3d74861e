"""The ids that callers choose, checked at every door that takes them."""

from __future__ import annotations

import re

from tandem.errors import IndexIdInvalid, ItemIdInvalid, RequestIdInvalid

MAX_ITEM_ID_BYTES = 256
MAX_REQUEST_ID_BYTES = 64

_INDEX_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_index_id(index_id: str) -> str:
    """Returns `index_id` as it is; raises `IndexIdInvalid` unless it is a DNS-label-like name."""
    # fullmatch, because `$` would let a final newline through.
    if _INDEX_ID.fullmatch(index_id) is None:
        raise IndexIdInvalid(index_id=index_id)
    return index_id


def check_item_id(item_id: str) -> str:
    """Returns `item_id` as it is; raises `ItemIdInvalid` unless it can be a stored key.

    Ids are compared byte by byte: NFC and NFD spellings of one word are two ids.
    """
    if not item_id:
        raise ItemIdInvalid(item_id=item_id, why="it is empty")
    # Stored keys are index_id, NUL, item_id: a NUL in the id could reach another index's key.
    if "\0" in item_id:
        raise ItemIdInvalid(item_id=item_id, why="it has a NUL in it")
    try:
        byte_count = len(item_id.encode())
    except UnicodeEncodeError:
        raise ItemIdInvalid(item_id=item_id, why="it is not UTF-8") from None
    if byte_count > MAX_ITEM_ID_BYTES:
        raise ItemIdInvalid(item_id=item_id, why=f"it has {byte_count:,} bytes")
    return item_id


def check_request_id(request_id: str) -> str:
    """Returns `request_id` as it is; raises `RequestIdInvalid` over 64 bytes. It may be empty."""
    # A lone surrogate cannot come over the wire; counted as the three bytes it would have been.
    byte_count = len(request_id.encode(errors="surrogatepass"))
    if byte_count > MAX_REQUEST_ID_BYTES:
        raise RequestIdInvalid(got=byte_count, limit=MAX_REQUEST_ID_BYTES)
    return request_id
