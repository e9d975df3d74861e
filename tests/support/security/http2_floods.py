"""Floods of HTTP/2 frames that break no rule, each by one stranger without a token."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

from tests.support.chassis.raw_http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    RESET,
    SETTINGS,
    block,
    call_headers,
    frame,
    opened,
)

_SEARCH = block(call_headers(b"/tandem.v1.SearchService/SearchItems"))
_CHECK = block(call_headers(b"/grpc.health.v1.Health/Check"))
_WATCH = block(call_headers(b"/grpc.health.v1.Health/Watch"))
_CANCEL = b"\0\0\0\x08"
_EMPTY_MESSAGE = b"\0" * 5
_BURST_SECONDS = 0.05
_SEND_SECONDS = 10.0

Burst = Callable[[int], bytes]
"""Returns the frames of the stream, or the ping, with an odd number."""


def _reset(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, _SEARCH) + frame(RESET, 0, stream, _CANCEL)


def _watch(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, _WATCH) + frame(
        DATA, END_STREAM, stream, _EMPTY_MESSAGE
    )


def _silent_check(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, _CHECK)


def _settings(_: int) -> bytes:
    return frame(SETTINGS, 0, 0)


def _priority(stream: int) -> bytes:
    return frame(PRIORITY, 0, stream, b"\0\0\0\0\x10")


def _ping(_: int) -> bytes:
    return frame(PING, 0, 0, b"\0" * 8)


FLOODS: Mapping[str, tuple[Burst, int, int]] = {
    "rapid reset": (_reset, 1, 2_000),
    "rapid reset, four times as fast": (_reset, 1, 8_000),
    "rapid reset, of many connections": (_reset, 20, 1_000),
    "watches": (_watch, 40, 800),
    "checks without a message": (_silent_check, 40, 800),
    "settings": (_settings, 1, 2_000),
    "priorities": (_priority, 1, 20_000),
    "pings": (_ping, 4, 2_000),
}
"""The frames, the connections that they come by, and how many come a second."""


def flood(port: int, name: str, seconds: float) -> int:
    """Sends the flood, and returns how many streams it began; a closed connection is replaced."""
    burst, connection_count, rate = FLOODS[name]
    each_count = max(1, int(rate * _BURST_SECONDS / connection_count))
    count, start_time = 0, time.monotonic()
    with ExitStack() as stack:
        flooding = [_Line(stack, port) for _ in range(connection_count)]
        while (passed_seconds := time.monotonic() - start_time) < seconds:
            for line in flooding:
                line.send(b"".join(burst(line.next()) for _ in range(each_count)))
                count += each_count
            time.sleep(max(0.0, count / rate - passed_seconds))
    return count


class _Line:
    """A connection that is opened anew when the server has closed it."""

    def __init__(self, stack: ExitStack, port: int) -> None:
        self._stack, self._port = stack, port
        self._open()

    def next(self) -> int:
        """Returns the number of the next stream."""
        self._stream += 2
        return self._stream

    def send(self, data: bytes) -> None:
        """Sends all, and drops what came."""
        try:
            self._connection.settimeout(_SEND_SECONDS)
            self._connection.sendall(data)
            self._connection.settimeout(0.0)
            with suppress(BlockingIOError):
                while self._connection.recv(65_536):
                    pass
        except OSError:
            self._open()

    def _open(self) -> None:
        self._stream = -1
        self._connection = self._stack.enter_context(opened(self._port))
        self._connection.sendall(frame(SETTINGS, ACK, 0))
