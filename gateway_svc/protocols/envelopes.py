"""Splits and makes the length-prefixed messages of gRPC-Web and of Connect's streams."""

import struct
from collections.abc import Iterator

from gateway_svc.faults import FRAME_REMEDY, malformed

_PREFIX = struct.Struct("!BI")
# Both protocols: the message is compressed.
_COMPRESSED = 0x01
# Connect's end of a stream, and gRPC-Web's trailers, which say nothing here.
_PASSED_OVER = (0x02, 0x80)


def envelope(payload: bytes, flags: int = 0) -> bytes:
    """Returns a message with its prefix."""
    return _PREFIX.pack(flags, len(payload)) + payload


def messages_of(body: bytes) -> Iterator[bytes]:
    """Yields the messages of a body; raises RequestMalformed."""
    position = 0
    while position < len(body):
        if len(body) - position < _PREFIX.size:
            raise malformed("the body ends within a message's prefix", FRAME_REMEDY)
        flags, size = _PREFIX.unpack_from(body, position)
        position += _PREFIX.size
        if flags & _COMPRESSED:
            raise malformed("compressed messages are not read", FRAME_REMEDY)
        if len(body) - position < size:
            raise malformed("the body ends within a message", FRAME_REMEDY)
        if not flags:
            yield body[position : position + size]
        elif flags not in _PASSED_OVER:
            raise malformed(f"a message has unknown flags, {flags:#04x}", FRAME_REMEDY)
        position += size


def one_message(body: bytes) -> bytes:
    """Returns the only message of a body; raises RequestMalformed."""
    messages = list(messages_of(body))
    if len(messages) != 1:
        raise malformed(f"the body has {len(messages)} messages", "send one")
    return messages[0]
