"""Puts a CRC before every value in the item store, and checks it.

LMDB has no checksums: it returns a flipped bit on disk as if it had been written. The CRC covers
the key too, so a value that turns up under another key is caught as well.
"""

import struct
import zlib

_CRC = struct.Struct("<I")
CHECKSUM_BYTES = _CRC.size


class ChecksumMismatch(Exception):
    """Raised for a stored value that is not what was written under its key."""


def seal(key: bytes, payload: bytes) -> bytes:
    """Returns the value to store under the key: CRC32, then the payload."""
    return _CRC.pack(_crc(key, payload)) + payload


def unseal(key: bytes, value: bytes | memoryview) -> memoryview:
    """Returns a view of the payload stored under the key; raises ChecksumMismatch."""
    view = memoryview(value)
    written = stored_checksum(view)
    payload = view[_CRC.size :]
    if (computed := _crc(key, payload)) != written:
        raise ChecksumMismatch(f"CRC32 is {computed:08x}, was {written:08x} when written")
    return payload


def stored_checksum(value: bytes | memoryview) -> int:
    """Returns the CRC32 of the value, unverified; raises ChecksumMismatch if it is too short."""
    if len(value) < _CRC.size:
        raise ChecksumMismatch(f"{len(value)} bytes are too few to hold a checksum")
    return int(_CRC.unpack_from(value)[0])


def _crc(key: bytes, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(key))
