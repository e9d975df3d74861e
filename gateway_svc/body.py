"""Reads the deadline of a request, and its body within limits of size and time."""

import asyncio
import re
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import Receive

from gateway_svc.faults import malformed
from tandem.chassis.capacity.admission import LEAST_BYTES_A_SECOND
from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded, MessageTooLarge

# gRPC's units of grpc-timeout.
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_GRPC_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_MILLISECONDS = re.compile(rb"\d{1,10}")


class CallerGone(Exception):
    """The caller closed the connection, so an answer cannot be sent."""


def deadline_of(headers: Headers, *, default_seconds: float, max_seconds: float) -> Deadline:
    """Returns the caller's deadline by gRPC's, Connect's or our own header, or the default.

    Raises RequestMalformed for a header that is not a timeout.
    """
    seconds = _asked_seconds(dict(headers.raw))
    return Deadline.after(min(default_seconds if seconds is None else seconds, max_seconds))


def declared_byte_count(headers: Headers) -> int:
    """Returns the content-length; 0 if the body's size is not declared."""
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() else 0


def check_size(byte_count: int, max_bytes: int) -> None:
    """Raises MessageTooLarge."""
    if byte_count > max_bytes:
        raise MessageTooLarge(why=f"the body has over {max_bytes:,} bytes")


async def read_body(
    receive: Receive,
    max_bytes: int,
    seconds: float,
    deadline: Deadline,
    count: Callable[[int], None],
) -> bytes:
    """Returns the body; raises MessageTooLarge, DeadlineExceeded or CallerGone.

    It may take so many seconds, and one more for each 64 KiB that have arrived, up to the deadline.
    Never holds more than `max_bytes` and one piece from the network, and calls `count` with the
    size of each piece.
    """
    body = bytearray()
    start_time = time.monotonic()
    try:
        async with asyncio.timeout_at(min(start_time + seconds, deadline.end_time)) as wait:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CallerGone
                piece = message.get("body", b"")
                check_size(len(body) + len(piece), max_bytes)
                count(len(piece))
                body += piece
                if not message.get("more_body", False):
                    return bytes(body)
                end_time = start_time + seconds + len(body) / LEAST_BYTES_A_SECOND
                wait.reschedule(min(end_time, deadline.end_time))
    except TimeoutError:
        waited_seconds = time.monotonic() - start_time
        raise DeadlineExceeded(what=f"a wait of {waited_seconds:.3g} s for the body") from None


def _asked_seconds(headers: dict[bytes, bytes]) -> float | None:
    if (text := headers.get(b"grpc-timeout")) is not None:
        if found := _GRPC_TIMEOUT.fullmatch(text):
            return int(found[1]) * _UNITS[found[2]]
        raise malformed("grpc-timeout is not a timeout", "send up to 8 digits and a unit: 500m")
    for name in (b"connect-timeout-ms", b"x-request-timeout-ms"):
        if (text := headers.get(name)) is not None:
            if _MILLISECONDS.fullmatch(text):
                return int(text) / 1000
            raise malformed(f"{name.decode()} is not a timeout", "send 1 to 10 digits")
    return None
