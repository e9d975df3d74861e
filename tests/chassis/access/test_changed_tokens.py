"""Streams whose token is changed or removed while they are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import grpc
import pytest

from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.open_door import address, connection, refusal

TOKEN = (("authorization", "Bearer token"),)


def entry(scopes: str = '"search", "write"', indexes: str = '"scenes"') -> str:
    """Returns a file with one token."""
    digest = sha256(b"token").hexdigest()
    return f'[tokens.someone]\nsha256 = "{digest}"\nscopes = [{scopes}]\nindexes = [{indexes}]\n'


CHANGES = {
    "nothing": (entry() + "\n", "OK"),
    "removed": ("", "UNAUTHENTICATED"),
    "of another index": (entry(indexes='"emoji"'), "PERMISSION_DENIED"),
}


def write(path: Path, text: str) -> None:
    """Replaces a file's text."""
    path.write_text(text)


@dataclass
class Door:
    """A service, and the file of its token, which it reads again at each call."""

    stub: SearchServiceStub
    path: Path
    asked: asyncio.Queue[None]
    """Takes each search that begins."""
    may_answer: asyncio.Semaphore


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Door]:
    """Serves searches that wait until they may be answered."""
    write(path, entry())
    seconds = iter(range(0, 1_000_000, 10))
    asked, may_answer = asyncio.Queue[None](), asyncio.Semaphore(0)

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        asked.put_nowait(None)
        await may_answer.acquire()
        return pb.SearchItemsResponse()

    guard = Guard(TokenFile(path, clock=lambda: float(next(seconds))))
    async with address(guard, search=search) as to, connection(to) as channel:
        yield Door(SearchServiceStub(channel), path, asked, may_answer)


@pytest.mark.parametrize("change", CHANGES)
async def test_the_next_message_of_a_stream_is_checked(tmp_path: Path, change: str) -> None:
    text, expected = CHANGES[change]
    batch = pb.IngestItemsRequest(index_id="scenes")
    async with opened(tmp_path / "tokens.toml") as door:
        stream = door.stub.IngestItems(metadata=TOKEN, timeout=60)
        for _ in range(2):
            door.may_answer.release()
        await stream.write(batch)
        assert await stream.read() is not grpc.aio.EOF
        write(door.path, text)
        await stream.write(batch)
        await stream.done_writing()
        if expected == "OK":
            assert await stream.read() is not grpc.aio.EOF
        assert await refusal(stream) == expected
        assert door.asked.qsize() == (2 if expected == "OK" else 1)


@pytest.mark.parametrize("change", CHANGES)
async def test_the_next_answer_of_a_stream_is_checked(tmp_path: Path, change: str) -> None:
    text, expected = CHANGES[change]
    request = pb.StreamSearchItemsRequest(search=pb.SearchItemsRequest(index_id="scenes"))
    async with opened(tmp_path / "tokens.toml") as door:
        stream = door.stub.StreamSearchItems(request, metadata=TOKEN, timeout=60)
        door.may_answer.release()
        assert await stream.read() is not grpc.aio.EOF
        write(door.path, text)
        for _ in range(2):
            door.may_answer.release()
        if expected == "OK":
            assert [await stream.read() is grpc.aio.EOF for _ in range(3)] == [False, False, True]
        assert await refusal(stream) == expected
