"""Frames of HTTP/2 that no client would send, of every kind, by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.chassis.raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH,
    RESET,
    SETTINGS,
    WINDOW,
    Header,
    block,
    call_headers,
    frame,
    literal,
)

_PATHS = (
    b"/tandem.v1.SearchService/SearchItems",
    b"/tandem.v1.SearchService/IngestItems",
    b"/grpc.health.v1.Health/Check",
    b"/grpc.health.v1.Health/Watch",
    b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    b"/tandem.v1.SearchService/\xff",
    b"/\xff\xfe/\x80",
    b"/tandem.v1.SearchService/SearchItems\x00",
    b"/" + b"a" * 9_000,
    b"*",
    b"",
    b"http://[::1/\xed\xa0\x80",
)
_NAMES = (b"authorization", b"x-request-id", b"traceparent", b"grpc-timeout", b"grpc-encoding",
          b"content-type", b"te", b":path", b":status", b"trace-bin", b"grpc-accept-encoding",
          b"host", b"Upper", b"", b"na\x00me", b"n\xc3\xa4me", b"connection", b":unknown",
          b"content-length", b"grpc-status", b"user-agent", b"grpc-tags-bin")  # fmt: skip
_VALUES = (b"", b"\xff", b"\x00", b"Bearer caf\xe9", b"99999999H", b"-1n", b"gzip", b"!!!=",
           b"a" * 20_000, b"\r\nx: y", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-ff",
           b"application/grpc+\xff", b"4294967296")  # fmt: skip


class Attack:
    """Makes what is sent on one connection.

    Half of them break no rule of the frames themselves: what does ends the connection, and nothing
    after it is heard.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._stream = -1
        self.is_wild = dice.random() < 0.5

    def frames(self, count: int) -> bytes:
        """Returns so many frames, some of which belong together."""
        kinds = _KINDS if self.is_wild else _TAME_KINDS
        return b"".join(self._dice.choice(kinds)(self) for _ in range(count))

    def headers(self) -> bytes:
        """A call, or nearly one, that may continue in frames to come."""
        flags = self._dice.choice((END_HEADERS, END_HEADERS, END_HEADERS | END_STREAM, 0, 0xFF))
        if not self.is_wild:
            flags = END_HEADERS | END_STREAM
        return frame(HEADERS, flags, self._next_stream(), self._block())

    def call(self) -> bytes:
        """A call with a message whose length and flag may be lies."""
        message = self._dice.randbytes(self._dice.choice((0, 1, 30)))
        size = self._dice.choice((len(message), len(message), 0, 2**32 - 1))
        prefix = self._dice.choice((b"\0", b"\1", b"\xff")) + size.to_bytes(4, "big")
        headers = frame(HEADERS, END_HEADERS, self._next_stream(), self._block())
        return headers + frame(DATA, END_STREAM, max(self._stream, 0), prefix + message)

    def data(self) -> bytes:
        """For a stream that there is, was, or never will be."""
        payload = self._dice.randbytes(self._dice.randrange(64))
        return frame(DATA, self._dice.choice((0, END_STREAM, PADDED)), self._any_stream(), payload)

    def continuation(self) -> bytes:
        """One or many, of headers that never end."""
        count = self._dice.choice((1, 1, 50))
        return b"".join(
            frame(
                CONTINUATION,
                self._dice.choice((0, 0, END_HEADERS)),
                max(self._stream, 0),
                self._block(),
            )
            for _ in range(count)
        )

    def reset(self) -> bytes:
        """At once after its call, many times over, or of nothing."""
        if self.is_wild and self._dice.random() < 0.5:
            return frame(RESET, 0, self._any_stream(), self._dice.randbytes(4))
        return b"".join(
            frame(HEADERS, END_HEADERS, self._next_stream(), self._block())
            + frame(RESET, 0, max(self._stream, 0), b"\0\0\0\x08")
            for _ in range(10)
        )

    def settings(self) -> bytes:
        """Of any number and value, or of a wrong length."""
        pairs = b"".join(
            self._dice.randrange(10).to_bytes(2, "big")
            + self._dice.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)).to_bytes(4, "big")
            for _ in range(self._dice.randrange(4))
        )
        return frame(SETTINGS, self._dice.choice((0, 0, 1)), 0, pairs + self._odd_end())

    def window(self) -> bytes:
        """Too much of it, nothing, or for no stream."""
        step = self._dice.choice((0, 1, 2**31 - 1, 2**32 - 1)).to_bytes(4, "big")
        return frame(WINDOW, 0, self._dice.choice((0, self._any_stream())), step + self._odd_end())

    def other(self) -> bytes:
        """Kinds that clients send seldom, may not send, or that there are none of."""
        kind = self._dice.choice((PRIORITY, PUSH, PING, GOAWAY, 10, 99, 255))
        payload = self._dice.randbytes(self._dice.choice((0, 5, 8, 17)))
        return frame(kind, self._dice.randrange(256), self._any_stream(), payload)

    def noise(self) -> bytes:
        """Bytes, or a frame that says it is longer than it is."""
        payload = self._dice.randbytes(self._dice.randrange(1, 40))
        if self._dice.random() < 0.5:
            return payload
        return (2**24 - 1).to_bytes(3, "big") + frame(DATA, 0, 1, payload)[3:]

    def _block(self) -> bytes:
        """Returns headers: some as they should be, some with more, fewer or no sense in them."""
        chance = self._dice.random()
        if chance < 0.1 and self.is_wild:
            return self._dice.randbytes(self._dice.randrange(60))  # HPACK of nothing
        headers = call_headers(self._dice.choice(_PATHS), *self._more())
        if chance < 0.3:
            self._dice.shuffle(headers)
            del headers[self._dice.randrange(len(headers)) :]
        told = block(headers)
        if chance < 0.4 and self.is_wild:
            told += literal(self._dice.choice(_NAMES), self._dice.choice(_VALUES))[:-1]
        return told[:16_000]

    def _more(self) -> list[Header]:
        return [
            (self._dice.choice(_NAMES), self._dice.choice(_VALUES))
            for _ in range(self._dice.choice((0, 0, 1, 3)))
        ]

    def _next_stream(self) -> int:
        self._stream += self._dice.choice((2, 2, 2, 2, 2, 1, 0, 100)) if self.is_wild else 2
        return max(self._stream, 0)

    def _any_stream(self) -> int:
        return self._dice.choice(
            (0, 1, max(self._stream, 0), self._stream + 2, 2**31 - 1, 2**32 - 1)
        )

    def _odd_end(self) -> bytes:
        return self._dice.choice((b"", b"", b"", b"\xff"))


_KINDS: tuple[Callable[[Attack], bytes], ...] = (
    *(Attack.headers, Attack.headers, Attack.call, Attack.call, Attack.call),
    *(Attack.data, Attack.continuation, Attack.reset, Attack.settings, Attack.window),
    *(Attack.other, Attack.noise),
)
_TAME_KINDS = (Attack.headers, Attack.call, Attack.call, Attack.call, Attack.reset)
