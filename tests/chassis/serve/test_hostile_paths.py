"""A call whose path no text can be is refused like any other that is not served."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import grpc
import pytest

from tandem.chassis.calls.channels import open_channel
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.chassis.serve.test_serve import ROOT, started
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
    """The process stays, refuses other unknown paths by name, and answers calls."""
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


# It says nothing of our code, which the test above does.
@pytest.mark.slow
async def test_without_our_guard_such_a_path_stops_the_server() -> None:
    """The control. Where it fails, grpcio is fixed, and docs/decisions/0037 says what can go."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.chassis.bare_server",
        cwd=ROOT,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        with opened(port) as connection:
            headers = block(call_headers(PATHS[0]))
            connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1, headers))
            async with asyncio.timeout(60):
                output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    # It says so, or is gone before it can: gRPC has written into freed memory by then.
    assert output == b"ended\n" or process.returncode < 0
    assert process.returncode != 0
