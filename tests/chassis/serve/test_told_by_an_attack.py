"""What a service under attack says: nothing of what was sent to it, in no line and in no form."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.chassis.serve.test_serve import started
from tests.support.chassis.raw_http2 import (
    Header,
    call_frames,
    ended_streams,
    opened,
)
from tests.support.security.canaries import bytes_canary, found, text_canary

SECRET = "Zubenelgenubi-and-Aldebaran-4711"
RAW = SECRET.encode()
IMAGE = bytes(range(128, 200))
TOKEN = f"tandem-{SECRET}"
SEARCH = b"/tandem.v1.SearchService/SearchItems"
ADMITTED = (b"authorization", f"Bearer {TOKEN}".encode())


def message(**fields: object) -> bytes:
    """Returns a search."""
    return pb.SearchItemsRequest(**fields).SerializeToString()  # type: ignore[arg-type]


CALLS: list[tuple[str, bytes, list[Header], bytes]] = [
    # The logged outcome; "" where the call does not reach a method.
    ("UNAUTHENTICATED", SEARCH, [(b"authorization", b"Bearer " + RAW + b"\xe9")], b""),
    ("UNAUTHENTICATED", SEARCH, [(b"authorization", "Bearer é".encode() + RAW)], b""),
    ("UNAUTHENTICATED", SEARCH, [(b"authorization", b"Bearer " + RAW)], b""),
    ("UNAUTHENTICATED", SEARCH, [(b"authorization", b"Basic " + RAW)], b""),
    ("INVALID_ARGUMENT", SEARCH, [ADMITTED, (b"cookie", RAW + b"\xff")], b""),
    ("INVALID_ARGUMENT", SEARCH, [ADMITTED, (b"x-request-id", RAW + b"\xff")], b""),
    ("INVALID_ARGUMENT", SEARCH, [ADMITTED, (b"traceparent", b"00-" + RAW + b"\xff")], b""),
    ("INVALID_ARGUMENT", SEARCH, [ADMITTED, (RAW.lower(), b"\xff")], b""),
    # lone_service makes a number of the index's name, and fails.
    ("INTERNAL", SEARCH, [ADMITTED], message(index_id=SECRET)),
    ("INTERNAL", SEARCH, [ADMITTED], message(
        index_id=SECRET, query=content_pb2.Content(text=SECRET, image=IMAGE))),
    ("INVALID_ARGUMENT", SEARCH, [ADMITTED], RAW),
    ("INVALID_ARGUMENT", SEARCH, [ADMITTED], IMAGE),
    ("OK", SEARCH, [ADMITTED, (b"trace-bin", b64encode(RAW))], b""),
    ("", SEARCH, [ADMITTED, (b"trace-bin", b"!" + RAW)], b""),
    ("", SEARCH, [ADMITTED, (b"grpc-timeout", RAW)], b""),
    ("", SEARCH, [ADMITTED, (b"grpc-encoding", RAW)], b""),
    ("", SEARCH, [ADMITTED, (b"na\0me" + RAW, RAW)], b""),
    ("", SEARCH, [ADMITTED, (b"long", RAW * 900)], b""),
    ("", SEARCH + RAW, [ADMITTED], b""),
    ("", b"/" + RAW + b"\xff", [ADMITTED], b""),
    ("", b"/grpc.health.v1.Health/Check", [(b"cookie", RAW + b"\xff")], RAW),
    ("", b"/grpc.health.v1.Health/Check", [], b"\x0a" + bytes([len(RAW)]) + RAW),
    ("", b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", [],
     b"\x22" + bytes([len(RAW)]) + RAW),
]  # fmt: skip


def called(port: int, path: bytes, headers: list[Header], body: bytes) -> None:
    """Makes a call and waits for its end."""
    with opened(port) as connection, contextlib.suppress(OSError):
        connection.sendall(call_frames(1, path, *headers, body=body))
        ended_streams(connection, 1, timeout_seconds=60)


def said(port: int, text: bytes) -> None:
    """Says something that is not a call."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    with connection, contextlib.suppress(OSError):
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass


async def test_nothing_that_was_sent_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens.toml"
    digest = sha256(TOKEN.encode()).hexdigest()
    tokens.write_text(
        f'[tokens.one]\nsha256 = "{digest}"\nscopes = ["search"]\nindexes = ["*"]\n', "utf-8"
    )
    monkeypatch.setenv("ACCESS_TOKEN_FILE", str(tokens))
    monkeypatch.setenv("LOG_LEVEL", "debug")
    async with started(tmp_path) as service:
        await service.event("serving")
        reading = asyncio.create_task(service.end())
        for _, path, headers, body in CALLS:
            await asyncio.to_thread(called, service.port, path, headers, body)
        for port in (service.port, service.metrics_port):
            get = b"GET /" + RAW + b" HTTP/1.1\r\nCookie: " + RAW + b"\r\n\r\n"
            for text in (RAW, get, b"\x16\x03\x01\x02\x00" + RAW, get.replace(b"GET", RAW)):
                await asyncio.to_thread(said, port, text)
        service.process.terminate()
        async with asyncio.timeout(60):
            code = await reading

    told = {"stderr": b"".join(service.output)}
    canaries = [
        text_canary("text", SECRET),
        text_canary("small letters", SECRET.lower()),
        bytes_canary("image", IMAGE),
    ]
    assert found(canaries, told) == []
    assert b"Invalid encoding" not in told["stderr"]
    served = Counter(each["code"] for each in service.events if each["event"] == "call served")
    expected = Counter(code for code, *_ in CALLS if code)
    assert served.items() >= expected.items(), served
    assert code == 0
