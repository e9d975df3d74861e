"""What one token's floods, over gRPC and HTTP, leave to another: its calls while they last.

With every change for some seconds; `make test-security` holds the times for longer.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from hashlib import sha256
from pathlib import Path

import grpc
import httpx2
import pytest

from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.security.test_hostile_callers import Door
from tests.support.chassis.open_door import INGEST, STREAM_SEARCH, connection
from tests.support.chassis.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    SETTINGS,
    block,
    call_headers,
    frame,
    opened,
)
from tests.support.gateway_svc.own_process import gateway_process
from tests.support.security.beside import MOST_BUSY_SECONDS, beside
from tests.support.security.run_counts import run_count

SECONDS = run_count(1, 20)
LEAST_CALL_COUNT = 3
ENCODING_SECONDS = 0.2
# As many as the orchestrator and the gateway have places for, and some more.
FLOOD_COUNT = 80
SEARCH = pb.SearchItemsRequest(index_id="scenes", query={"text": "1"})
BATCH = pb.IngestItemsRequest(index_id="scenes", items=[{"item_id": "a", "content": {"text": "1"}}])
# More than gRPC takes into a buffer of its own, whether or not it is read.
LARGE_SEARCH = pb.SearchItemsRequest(
    index_id="large", query={"text": "1"}, content_included=True, return_n=64
)
LARGE_BATCH = pb.IngestItemsRequest(
    index_id="large",
    items=[
        {"item_id": str(number), "content": {"text": f"1{' ' * 2_000}"}} for number in range(64)
    ],
)
NO_WINDOW = frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0")

Lasts = Callable[[], Awaitable[None]]
"""Waits until the flood may end."""

Flood = Callable[["Doors", Lasts], Awaitable[int]]
"""Returns how many of its calls reached a limit, or were left waiting."""


def bearer(name: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {name}"),)


class Doors:
    """The orchestrator and the gateway, in processes of their own."""

    def __init__(self, address: str, url: str) -> None:
        self.address, self.url = address, url
        self.port = int(address.rpartition(":")[2])
        self.http_port = int(url.rpartition(":")[2])


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two, which may do the same."""
    path = tmp_path_factory.mktemp("floods") / "tokens.toml"
    path.write_text(
        "".join(
            f'[tokens.{name}]\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
            'scopes = ["search", "write"]\nindexes = ["*"]\n'
            for name in ("hostile", "other")
        )
    )
    return path


@pytest.fixture(scope="module")
def door(tokens: Path) -> Iterator[Door]:
    """Takes a while for each encoding, so that its places are in use."""
    running = Door(tokens, ENCODING_SECONDS)
    yield running
    running.stop()


@asynccontextmanager
async def doors(door: Door, tokens: Path) -> AsyncIterator[Doors]:
    """Both, with an item to find."""
    async with (
        gateway_process(door.address, ACCESS_TOKEN_FILE=str(tokens)) as gateway,
        connection(door.address) as channel,
    ):
        port = (await gateway.event("listening"))["port"]
        reading = asyncio.create_task(gateway.end())
        await ingested(channel)
        await ingested(channel, LARGE_BATCH)
        yield Doors(door.address, f"http://127.0.0.1:{port}")
        gateway.process.terminate()
        await reading


async def ingested(channel: grpc.aio.Channel, batch: pb.IngestItemsRequest = BATCH) -> None:
    stream = SearchServiceStub(channel).IngestItems(
        iter([batch]), metadata=bearer("other"), timeout=60
    )
    assert [each async for each in stream]


def unread(port: int, path: str, message: bytes, streams: int, messages: int) -> socket.socket:
    """Returns a connection with calls whose answers have no window."""
    headers = block([*call_headers(path.encode()), (b"authorization", b"Bearer hostile")])
    body = b"\0" + len(message).to_bytes(4, "big") + message
    flag = END_STREAM if messages == 1 else 0
    made = opened(port)
    made.sendall(NO_WINDOW)
    for number in range(1, 2 * streams, 2):
        frames = frame(DATA, flag, number, body) * messages
        made.sendall(frame(HEADERS, END_HEADERS, number, headers) + frames)
    return made


def begun_count(made: socket.socket) -> int:
    """Returns how many calls of the connection were answered with headers, and no more."""
    made.settimeout(0.2)
    received = b""
    try:
        while part := made.recv(65_536):
            received += part
    except TimeoutError:
        pass
    kinds = Counter[int]()
    while len(received) >= 9:
        kinds[received[3]] += 1
        received = received[9 + int.from_bytes(received[:3], "big") :]
    assert not kinds[DATA]
    return kinds[HEADERS]


async def unread_searches(doors: Doors, lasts: Lasts) -> int:
    """Searches whose two answers are not read."""
    message = pb.StreamSearchItemsRequest(search=LARGE_SEARCH).SerializeToString()
    with closing(unread(doors.port, STREAM_SEARCH, message, FLOOD_COUNT, 1)) as made:
        await lasts()
        return await asyncio.to_thread(begun_count, made)


async def unread_ingest(doors: Doors, lasts: Lasts) -> int:
    """Streams of an ingest whose answers are not read."""
    message = BATCH.SerializeToString()
    with closing(unread(doors.port, INGEST, message, 8, 7)) as made:
        await lasts()
        return await asyncio.to_thread(begun_count, made)


async def many_searches(doors: Doors, lasts: Lasts) -> int:
    """Searches that are made again as soon as they are answered or refused."""
    refused_count = 0

    async def several(search: grpc.aio.UnaryUnaryMultiCallable) -> None:
        nonlocal refused_count
        while True:
            try:
                await search(SEARCH, metadata=bearer("hostile"), timeout=60)
            except grpc.aio.AioRpcError as error:
                refused_count += error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    async with connection(doors.address) as channel:
        search = SearchServiceStub(channel).SearchItems
        await _for(lasts, [several(search) for _ in range(FLOOD_COUNT)])
    return refused_count


async def many_http_searches(doors: Doors, lasts: Lasts) -> int:
    """The same over HTTP."""
    refused_count = 0

    async def several(client: httpx2.AsyncClient) -> None:
        nonlocal refused_count
        while True:
            answer = await client.post("/v1/search", json=_JSON, headers=dict(bearer("hostile")))
            refused_count += answer.status_code == 429

    limits = httpx2.Limits(max_connections=FLOOD_COUNT)
    async with httpx2.AsyncClient(base_url=doors.url, timeout=60, limits=limits) as client:
        await _for(lasts, [several(client) for _ in range(FLOOD_COUNT)])
    return refused_count


async def absent_bodies(doors: Doors, lasts: Lasts) -> int:
    """Requests over HTTP that announce 100 bytes, and send one of them."""
    head = (
        "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hostile\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    lasting = asyncio.ensure_future(lasts())
    silent_counts = []
    while not lasting.done():
        async with AsyncExitStack() as stack:
            waiting = [
                stack.enter_context(
                    closing(socket.create_connection(("127.0.0.1", doors.http_port)))
                )
                for _ in range(FLOOD_COUNT)
            ]
            for each in waiting:
                each.sendall(head.encode())
            # Their deadline passes after 10 s, and then others come.
            await asyncio.wait({lasting}, timeout=8.0)
            # An answer, or an end, can be read.
            silent_counts.append(FLOOD_COUNT - len(select.select(waiting, [], [], 0)[0]))
    return min(silent_counts)


async def _for(lasts: Lasts, running: list[Awaitable[None]]) -> None:
    tasks = [asyncio.ensure_future(each) for each in running]
    await lasts()
    for each in tasks:
        each.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


_JSON = {"index_id": "scenes", "query": "1"}

FLOODS: Mapping[str, tuple[Flood, int]] = {
    "searches over gRPC that are not read": (unread_searches, 64),
    "ingest streams that are not read": (unread_ingest, 1),
    "searches over gRPC": (many_searches, 1),
    "searches over HTTP": (many_http_searches, 1),
    "bodies over HTTP that do not come": (absent_bodies, FLOOD_COUNT),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_one_tokens_flood_refuses_and_delays_no_other(
    door: Door, tokens: Path, name: str
) -> None:
    """Its searches over gRPC and HTTP, and its ingest, beside the flood; that it is one is seen."""
    flood, least_count = FLOODS[name]
    async with (
        doors(door, tokens) as both,
        connection(door.address) as channel,
        httpx2.AsyncClient(base_url=both.url, timeout=60) as client,
    ):

        async def search() -> None:
            await SearchServiceStub(channel).SearchItems(
                SEARCH, metadata=bearer("other"), timeout=60
            )

        async def http_search() -> None:
            answer = await client.post("/v1/search", json=_JSON, headers=dict(bearer("other")))
            answer.raise_for_status()

        async with (
            beside(search) as searches,
            beside(http_search) as http_searches,
            beside(lambda: ingested(channel)) as batches,
        ):
            seen = {"searches": searches, "searches over HTTP": http_searches, "batches": batches}

            async def lasts() -> None:
                end_time = time.monotonic() + SECONDS
                while time.monotonic() < end_time or (  # noqa: ASYNC110 (what others do has no event)
                    min(len(each.seconds) for each in seen.values()) < LEAST_CALL_COUNT
                    and time.monotonic() < end_time + MOST_BUSY_SECONDS
                ):
                    await asyncio.sleep(0.02)

            count = await flood(both, lasts)

    for kind, each in seen.items():
        each.check(f"{name}, {kind}")
        assert len(each.seconds) >= LEAST_CALL_COUNT, kind
    assert count >= least_count, "positive control: there was a flood"
