"""A call whose path no text can be is refused like any other that is not served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from tandem.chassis.calls.channels import open_channel
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.chassis.serve.test_serve import started
from tests.support.chassis.raw_http2 import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    block,
    call_headers,
    ended_streams,
    frame,
    opened,
)

PATHS = (
    b"/tandem.v1.SearchService/\xff",
    b"/tandem.v1.SearchService/SearchItems\xc3",
    b"/\xed\xa0\x80/\xed\xbf\xbf",  # halves of a pair, which UTF-8 has no place for
    b"\xff\xfe",
    b"",
    b"/" + b"\x80" * 5_000,
)


def answered_paths(port: int) -> int:
    """Asks for each path at once on one connection; returns how many of the calls were ended."""
    with opened(port) as connection:
        for number, path in enumerate(PATHS):
            headers = block(call_headers(path))
            connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, headers))
        return len(ended_streams(connection, len(PATHS), timeout_seconds=30))


async def test_a_path_that_is_not_text_fails_only_its_call(tmp_path: Path) -> None:
    async with started(tmp_path) as service, open_channel(f"127.0.0.1:{service.port}") as channel:
        await service.event("serving")

        count = await asyncio.to_thread(answered_paths, service.port)

        stub = SearchServiceStub(channel)
        answer = await stub.SearchItems(pb.SearchItemsRequest(index_id="0"), timeout=60)
        unknown = channel.unary_unary("/tandem.v1.SearchService/Guess")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unknown(b"", timeout=60)
        service.process.terminate()
        code = await service.end()

    assert count == len(PATHS)
    assert answer == pb.SearchItemsResponse()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert code == 0
    assert not [event for event in service.events if event["level"] == "error"]
