"""Seals and opens the bytes of a cursor: format version, checksum, compressed payload.

It has a checksum and no signature: a caller who may search an index may get any of its items by id,
so a forged cursor reveals nothing new. Nor does it cost more to serve than a search: a payload that
no answer produces is refused before it is parsed (decision 41).
"""

import struct
import zlib

from tandem.errors import CursorInvalid

# 2,000 items with ids of 256 bytes and explanations take about 1 MiB.
MAX_CURSOR_BYTES = 2 * 2**20
MAX_HELD_BYTES = 4 * 2**20

_FORMAT = 1
_HEAD = struct.Struct("!BI")
# Ids and floats compress no better at higher levels.
_LEVEL = 1


def seal_cursor(held: bytes) -> bytes:
    """Returns the cursor for this payload."""
    compressed = zlib.compress(held, _LEVEL)
    return _HEAD.pack(_FORMAT, zlib.crc32(compressed)) + compressed


def unseal_cursor(cursor: bytes) -> bytes:
    """Returns the cursor's payload; raises CursorInvalid for what `seal_cursor` never made."""
    if not _HEAD.size < len(cursor) <= MAX_CURSOR_BYTES:
        raise CursorInvalid(why=f"it has {len(cursor):,} bytes")
    version, checksum = _HEAD.unpack_from(cursor)
    if version != _FORMAT:
        raise CursorInvalid(why=f"its format {version} is unknown")
    compressed = cursor[_HEAD.size :]
    if zlib.crc32(compressed) != checksum:
        raise CursorInvalid(why="it is damaged or is not a cursor")
    opened = zlib.decompressobj()
    try:
        # Bounded, against decompression bombs.
        held = opened.decompress(compressed, MAX_HELD_BYTES)
    except zlib.error:
        raise CursorInvalid(why="its payload cannot be read") from None
    if not opened.eof or opened.unused_data:
        raise CursorInvalid(why="its payload is too large or incomplete")
    return held
