"""The bytes of a cursor: the format's version, a checksum, and what it holds, compressed.

A checksum, no signature: whoever may search an index may have any of its items by id anyway, so a
cursor that somebody made up himself shows him nothing new. Nor does it cost more to serve than a
search: what no answer could have left is refused before it is parsed (decision 41).
"""

import struct
import zlib

from tandem.errors import CursorInvalid

# 2,000 items with ids of 256 bytes and explanations come to about 1 MiB.
MAX_CURSOR_BYTES = 2 * 2**20
_MAX_HELD_BYTES = 4 * 2**20

_FORMAT = 1
_HEAD = struct.Struct("!BI")
# Ids and floats have little that a longer search for repetitions would find.
_LEVEL = 1


def seal_cursor(held: bytes) -> bytes:
    """Returns the cursor that holds this."""
    compressed = zlib.compress(held, _LEVEL)
    return _HEAD.pack(_FORMAT, zlib.crc32(compressed)) + compressed


def unseal_cursor(cursor: bytes) -> bytes:
    """Returns what the cursor holds; raises CursorInvalid for what `seal_cursor` never made."""
    if not _HEAD.size < len(cursor) <= MAX_CURSOR_BYTES:
        raise CursorInvalid(why=f"it has {len(cursor):,} bytes")
    version, checksum = _HEAD.unpack_from(cursor)
    if version != _FORMAT:
        raise CursorInvalid(why=f"its format {version} is not known here")
    compressed = cursor[_HEAD.size :]
    if zlib.crc32(compressed) != checksum:
        raise CursorInvalid(why="it is damaged or was never one")
    opened = zlib.decompressobj()
    try:
        # Bounded: a few kilobytes may be made to hold gigabytes.
        held = opened.decompress(compressed, _MAX_HELD_BYTES)
    except zlib.error:
        raise CursorInvalid(why="what it holds cannot be read") from None
    if not opened.eof or opened.unused_data:
        raise CursorInvalid(why="it holds too much, or not all")
    return held
