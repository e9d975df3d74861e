"""HTTP/2 as no library would send it: frames by hand, over a socket."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Frame:
    """One that came back."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Returns a frame; nothing in it needs to make sense."""
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Returns a header as HPACK's literal without indexing."""
    return b"\0" + _string(name) + _string(value)


def block(headers: Iterable[Header]) -> bytes:
    """Returns a block of headers."""
    return b"".join(literal(*each) for each in headers)


def call_headers(path: bytes, *more: Header) -> list[Header]:
    """Returns what a gRPC call begins with."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]


def opened(port: int, timeout_seconds: float = 10.0) -> socket.socket:
    """Returns a connection that has said the preface."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


def ended_streams(connection: socket.socket, count: int, timeout_seconds: float) -> set[int]:
    """Reads until so many streams have ended, by a flag or a reset; returns which."""
    end_time = time.monotonic() + timeout_seconds
    received, ended = b"", set[int]()
    while len(ended) < count:
        connection.settimeout(max(0.01, end_time - time.monotonic()))
        part = connection.recv(65_536)
        if not part:
            break
        received += part
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
            size = int.from_bytes(received[:3], "big")
            each = Frame(
                received[3],
                received[4],
                int.from_bytes(received[5:9], "big"),
                received[9 : 9 + size],
            )
            received = received[9 + size :]
            if each.kind == RESET or (each.kind in (DATA, HEADERS) and each.flags & END_STREAM):
                ended.add(each.stream)
    return ended


def _string(text: bytes) -> bytes:
    """Returns a string with its length in HPACK's integers of 7 bits."""
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    size, prefix = size - 127, b"\x7f"
    while size >= 128:
        prefix += bytes([size % 128 + 128])
        size //= 128
    return prefix + bytes([size]) + text


def call_frames(number: int, path: bytes, *headers: Header, body: bytes = b"") -> bytes:
    """Returns the frames of a whole call with one message, on the stream of that number."""
    data = struct.pack("!BI", 0, len(body)) + body
    begun = frame(HEADERS, END_HEADERS, number, block(call_headers(path, *headers))[:16_384])
    return begun + frame(DATA, END_STREAM, number, data)
