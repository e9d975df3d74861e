"""Servers that are not Tandem, byte by byte: what stands at a wrong address, or before ours."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[socket.socket], None]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS = 1, 4
_PAGE = b"<html><body><h1>Sign in [/x]</h1></body></html>"


def http1_page(connection: socket.socket) -> None:
    """A web server of old, to whatever is sent."""
    connection.recv(1024)
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(_PAGE)
        + _PAGE
    )


def closed(connection: socket.socket) -> None:
    """Takes the connection and ends it."""
    connection.recv(1024)


def http2(head: bytes, body: bytes = b"", end: bytes | None = None) -> Answer:
    """Answers each call with these headers, in HPACK, with a body, and with trailers or without."""

    def answer(connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        assert stream.read(len(_PREFACE)) == _PREFACE
        connection.sendall(_frame(_SETTINGS, 0, 0))
        while len(start := stream.read(9)) == 9:
            length, kind, flags = int.from_bytes(start[:3], "big"), start[3], start[4]
            number = int.from_bytes(start[5:], "big")
            stream.read(length)
            if kind == _SETTINGS and not flags & 1:
                connection.sendall(_frame(_SETTINGS, 1, 0))
            if kind == _HEADERS and number == 1:
                # The question after its health: one that knows no such thing is called all the
                # same, and one that answers it oddly is never called.
                connection.sendall(_frame(_HEADERS, 5, number, _UNIMPLEMENTED))
            elif kind == _HEADERS:
                is_all = not body and end is None
                connection.sendall(_frame(_HEADERS, 5 if is_all else 4, number, head))
                if body:
                    connection.sendall(_frame(0, 0 if end is not None else 1, number, body))
                if end is not None:
                    connection.sendall(_frame(_HEADERS, 5, number, end))

    return answer


def header(name: str, value: str) -> bytes:
    """Returns one header as HPACK writes it where it has no number for it."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


_UNIMPLEMENTED = b"\x88" + header("content-type", "application/grpc") + header("grpc-status", "12")

ODD: dict[str, Answer] = {
    "http1 page": http1_page,
    "closed": closed,
    "http2 page": http2(b"\x88" + header("content-type", "text/html"), _PAGE),
    "http2 404": http2(b"\x8d" + header("content-type", "text/html"), _PAGE),
    "http2 400": http2(b"\x8c" + header("content-type", "text/html"), _PAGE),
    "http2 302": http2(header(":status", "302") + header("location", "http://sign.in/")),
    "http2 403": http2(header(":status", "403")),
    "http2 401": http2(header(":status", "401")),
    "http2 429": http2(header(":status", "429")),
    "http2 502": http2(header(":status", "502"), _PAGE),
    "http2 413": http2(header(":status", "413"), _PAGE),
    "grpc unimplemented": http2(_UNIMPLEMENTED),
    "grpc internal": http2(
        b"\x88" + header("content-type", "application/grpc") + header("grpc-status", "13")
    ),
    "grpc unknown": http2(
        b"\x88" + header("content-type", "application/grpc") + header("grpc-status", "2")
    ),
    "grpc no status": http2(b"\x88" + header("content-type", "application/grpc")),
    "grpc no message": http2(
        b"\x88" + header("content-type", "application/grpc") + header("grpc-status", "0")
    ),
    "grpc other message": http2(
        b"\x88" + header("content-type", "application/grpc"),
        b"\x00\x00\x00\x00\x02\x0a\xff",
        header("grpc-status", "0"),
    ),
    "grpc page as message": http2(
        b"\x88" + header("content-type", "application/grpc"), _PAGE, header("grpc-status", "0")
    ),
}


@contextmanager
def odd_server(answer: Answer) -> Iterator[str]:
    """Serves on loopback, each connection by itself, and yields host:port."""
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError, AssertionError):
            answer(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connections.append(connection)
                thread = threading.Thread(target=serve, args=(connection,), daemon=True)
                threads.append(thread)
                thread.start()

    listening = socket.create_server(("127.0.0.1", 0))
    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big")
    return head + payload
