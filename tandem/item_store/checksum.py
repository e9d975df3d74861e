"""A CRC in front of every value the item store keeps.

LMDB has no checksums: one flipped bit on disk is read back as if it had been written. The CRC
covers the key too, so a value that turns up under another key is caught as well.
"""

import struct
import zlib

_CRC = struct.Struct("<I")
CHECKSUM_BYTES = _CRC.size


class ChecksumMismatch(Exception):
    """A stored value is not what was written under its key."""


def seal(key: bytes, payload: bytes) -> bytes:
    """Returns the payload as it is stored under the key: CRC32 first."""
    return _CRC.pack(_crc(key, payload)) + payload


def unseal(key: bytes, value: bytes | memoryview) -> memoryview:
    """Returns the payload stored under the key, without a copy; raises ChecksumMismatch."""
    view = memoryview(value)
    written = stored_checksum(view)
    payload = view[_CRC.size :]
    if (computed := _crc(key, payload)) != written:
        raise ChecksumMismatch(f"CRC32 is {computed:08x}, was {written:08x} when written")
    return payload


def stored_checksum(value: bytes | memoryview) -> int:
    """Returns the CRC32 in front of the value, unverified; raises ChecksumMismatch without one."""
    if len(value) < _CRC.size:
        raise ChecksumMismatch(f"{len(value)} bytes are too few to hold a checksum")
    return int(_CRC.unpack_from(value)[0])


def _crc(key: bytes, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(key))
