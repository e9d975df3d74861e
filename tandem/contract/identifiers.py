"""Validates the ids that callers choose, and fingerprints of models."""

import re

from tandem.errors import IndexIdInvalid, ItemIdInvalid, RequestIdInvalid, RequestMalformed

MAX_ITEM_ID_BYTES = 256
MAX_REQUEST_ID_BYTES = 64
MAX_FINGERPRINT_LENGTH = 128

# Behind "@", the number of a generation (generation_ids.py).
_INDEX_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}(@[1-9][0-9]{0,5})?")


def check_index_id(index_id: str) -> str:
    """Returns `index_id`; raises `IndexIdInvalid` unless it resembles a DNS label.

    It may name a generation, such as "photos@2".
    """
    # fullmatch, because `$` would accept a final newline.
    if not isinstance(index_id, str) or _INDEX_ID.fullmatch(index_id) is None:
        raise IndexIdInvalid(index_id=str(index_id))
    return index_id


def check_item_id(item_id: str) -> str:
    """Returns `item_id`; raises `ItemIdInvalid` unless it can be a stored key.

    Ids compare byte by byte: NFC and NFD spellings of one word are two ids.
    """
    if not isinstance(item_id, str):
        raise ItemIdInvalid(item_id=str(item_id), why=f"it is of type {type(item_id).__name__}")
    if not item_id:
        raise ItemIdInvalid(item_id=item_id, why="it is empty")
    # Stored keys are index_id, NUL, item_id: a NUL in the id could reach another index's key.
    if "\0" in item_id:
        raise ItemIdInvalid(item_id=item_id, why="it contains NUL")
    try:
        byte_count = len(item_id.encode())
    except UnicodeEncodeError:
        raise ItemIdInvalid(item_id=item_id, why="it is not UTF-8") from None
    if byte_count > MAX_ITEM_ID_BYTES:
        raise ItemIdInvalid(item_id=item_id, why=f"it has {byte_count:,} bytes")
    return item_id


def check_request_id(request_id: str) -> str:
    """Returns `request_id`; raises `RequestIdInvalid` over 64 bytes. It may be empty."""
    # A lone surrogate, which the wire cannot carry, counts as three bytes.
    byte_count = len(request_id.encode(errors="surrogatepass"))
    if byte_count > MAX_REQUEST_ID_BYTES:
        raise RequestIdInvalid(got=byte_count, limit=MAX_REQUEST_ID_BYTES)
    return request_id


def check_fingerprint(fingerprint: str) -> str:
    """Returns the fingerprint; raises `RequestMalformed` for an empty or too long one."""
    # An index keeps the first fingerprint it gets, so an empty one would stay.
    if not 1 <= len(fingerprint) <= MAX_FINGERPRINT_LENGTH:
        raise RequestMalformed(
            why=f"model_fingerprint has {len(fingerprint)} characters, "
            f"not 1 to {MAX_FINGERPRINT_LENGTH}"
        )
    return fingerprint
