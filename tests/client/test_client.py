"""Both clients against a real server: answers, errors by name, streams that keep pace.

Each behaviour is tried through Client (in a thread, as the server is in this loop) and AsyncClient.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import pytest

from tandem import errors
from tandem.client import (
    AsyncClient,
    Client,
    IngestOutcome,
    NewItem,
    Removal,
    SearchResult,
)
from tandem.client.query import Query
from tandem.client.sendable import NewContent
from tandem.contract.filtering.filters import Filter
from tandem.v1 import error_reason_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.odd_server import ODD, odd_server
from tests.support.client.search_server import all_stored, search_server
from tests.support.grid import sampled

Items = Iterable[NewItem]


class AnyClient(Protocol):
    """One client or the other, called alike."""

    async def search(
        self, query: Query, timeout_seconds: float = 10.0, wanted: Filter | None = None
    ) -> SearchResult:
        """Searches index "scenes"."""
        ...

    async def ingest(
        self, items: Items, batch_item_count: int = 32, take: int | None = None
    ) -> list[IngestOutcome]:
        """Ingests into "scenes"; stops after `take` outcomes where given."""
        ...

    async def remove(self, item_ids: Iterable[str]) -> Removal:
        """Removes from "scenes"."""
        ...

    async def remove_index(self, index_id: str) -> Removal:
        """Removes a part of the index, or the last of it."""
        ...


class Threaded:
    """Client, in threads."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def search(
        self, query: Query, timeout_seconds: float = 10.0, wanted: Filter | None = None
    ) -> SearchResult:
        """As AnyClient."""

        def search() -> SearchResult:
            with Client(self._address, timeout_seconds) as client:
                return client.search(query, index_id="scenes", where=wanted)

        return await asyncio.to_thread(search)

    async def ingest(
        self, items: Items, batch_item_count: int = 32, take: int | None = None
    ) -> list[IngestOutcome]:
        """As AnyClient."""

        def ingest() -> list[IngestOutcome]:
            outcomes = []
            with Client(self._address) as client:
                stream = client.ingest(items, index_id="scenes", batch_item_count=batch_item_count)
                for outcome in stream:
                    outcomes.append(outcome)
                    if len(outcomes) == take:
                        stream.close()  # type: ignore[attr-defined]
                        break
            return outcomes

        return await asyncio.to_thread(ingest)

    async def remove(self, item_ids: Iterable[str]) -> Removal:
        """As AnyClient."""

        def remove() -> Removal:
            with Client(self._address) as client:
                return client.remove(item_ids, index_id="scenes")

        return await asyncio.to_thread(remove)

    async def remove_index(self, index_id: str) -> Removal:
        """As AnyClient."""

        def remove() -> Removal:
            with Client(self._address) as client:
                return client.remove_index(index_id=index_id)

        return await asyncio.to_thread(remove)


class Awaited:
    """AsyncClient."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def search(
        self, query: Query, timeout_seconds: float = 10.0, wanted: Filter | None = None
    ) -> SearchResult:
        """As AnyClient."""
        async with AsyncClient(self._address, timeout_seconds) as client:
            return await client.search(query, index_id="scenes", where=wanted)

    async def ingest(
        self, items: Items, batch_item_count: int = 32, take: int | None = None
    ) -> list[IngestOutcome]:
        """As AnyClient."""
        outcomes = []
        async with AsyncClient(self._address) as client:
            stream = client.ingest(items, index_id="scenes", batch_item_count=batch_item_count)
            async for outcome in stream:
                outcomes.append(outcome)
                if len(outcomes) == take:
                    await stream.aclose()  # type: ignore[attr-defined]
                    break
        return outcomes

    async def remove(self, item_ids: Iterable[str]) -> Removal:
        """As AnyClient."""
        async with AsyncClient(self._address) as client:
            return await client.remove(item_ids, index_id="scenes")

    async def remove_index(self, index_id: str) -> Removal:
        """As AnyClient."""
        async with AsyncClient(self._address) as client:
            return await client.remove_index(index_id=index_id)


@pytest.fixture(name="connect", params=[Threaded, Awaited])
def _connect(request: pytest.FixtureRequest) -> Callable[[str], AnyClient]:
    return request.param


def texts(count: int) -> list[NewItem]:
    """Returns items of one word each."""
    return [(f"item-{n}", "word") for n in range(count)]


async def test_a_search_returns_its_answer(connect: Callable[[str], AnyClient]) -> None:
    """The query arrives, the answer comes back, and a request id went with it."""

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        return pb.SearchItemsResponse(items=[pb.RankedItem(item_id=request.query.text)])

    async with search_server(search) as (address, service):
        result = await connect(address).search("two dogs")

    assert [item.item_id for item in result.items] == ["two dogs"]
    [metadata] = service.metadata
    assert len(metadata["x-request-id"]) == 32


async def test_an_async_client_may_be_made_anywhere_and_used_in_any_loop() -> None:
    async def found(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        return pb.SearchItemsResponse(items=[pb.RankedItem(item_id="a")])

    async with search_server(found) as (address, service):

        def run_twice(client: AsyncClient) -> int:
            async def search() -> int:
                answers = [client.search("x", index_id="i") for _ in range(3)]
                return sum(len(each.items) for each in await asyncio.gather(*answers))

            return asyncio.run(search()) + asyncio.run(search())

        client = await asyncio.to_thread(AsyncClient, address)
        runs = [asyncio.to_thread(run_twice, client) for _ in range(3)]
        counts = await asyncio.gather(*runs)
        here = await client.search("x", index_id="i")
        await client.close()
        with pytest.raises(RuntimeError, match="is closed"):
            await client.search("x", index_id="i")

    assert (counts, len(here.items)) == ([6, 6, 6], 1)
    assert len(service.requests) == 19


@pytest.mark.parametrize(
    "error",
    [
        errors.TextEmpty(),
        errors.Overloaded(what="searches"),
    ],
    ids=lambda error: error.reason,
)
async def test_a_refusal_is_raised_by_the_servers_name_and_words(
    connect: Callable[[str], AnyClient], error: errors.TandemError
) -> None:
    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        raise error

    async with search_server(search) as (address, _):
        with pytest.raises(type(error)) as caught:
            await connect(address).search("two dogs")

    assert caught.value.message == error.message


async def test_a_late_answer_is_a_deadline_exceeded(connect: Callable[[str], AnyClient]) -> None:
    """The error says that it was the client's own timeout."""

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        await asyncio.sleep(5)
        return pb.SearchItemsResponse()

    async with search_server(search) as (address, _):
        with pytest.raises(errors.DeadlineExceeded):
            await connect(address).search("two dogs", timeout_seconds=0.2)


async def test_a_closed_port_raises_service_unavailable(
    connect: Callable[[str], AnyClient],
) -> None:
    """The error has the address that was tried."""
    # No server listens on port 1.
    with pytest.raises(errors.ServiceUnavailable, match=r"127\.0\.0\.1:1"):
        await connect("127.0.0.1:1").search("two dogs")


async def test_an_index_is_removed_part_by_part(connect: Callable[[str], AnyClient]) -> None:
    """The answer says whether to call again; an invalid name is not sent."""
    async with search_server() as (address, service):
        client = connect(address)
        first, last = [await client.remove_index("pets") for _ in range(2)]
        with pytest.raises(errors.IndexIdInvalid):
            await client.remove_index("[/x]")

    assert (first, last) == (Removal(3, "", is_complete=False), Removal(3, "", is_complete=True))
    assert service.requests == [pb.RemoveIndexRequest(index_id="pets")] * 2


async def test_outcomes_have_the_order_of_the_items(connect: Callable[[str], AnyClient]) -> None:
    async def ingest(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        response = await all_stored(request)
        for result in response.results:
            if result.item_id == "item-4":
                result.error.reason = error_reason_pb2.ERROR_REASON_TEXT_EMPTY
        return response

    async with search_server(ingest=ingest) as (address, service):
        outcomes = await connect(address).ingest(texts(7), batch_item_count=3)

    assert [outcome.item_id for outcome in outcomes] == [f"item-{n}" for n in range(7)]
    refused = [outcome.item_id for outcome in outcomes if outcome.error]
    assert refused == ["item-4"]
    assert [len(request.items) for request in service.requests] == [3, 3, 1]


async def test_a_stream_that_is_refused_raises_after_what_was_stored(
    connect: Callable[[str], AnyClient],
) -> None:
    """The first batch's outcomes came; the second ends the stream by name."""
    answered: list[Any] = []

    async def ingest(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        if answered:
            raise errors.StoreFull(why="the disk is full")
        answered.append(request)
        return await all_stored(request)

    async with search_server(ingest=ingest) as (address, _):
        with pytest.raises(errors.StoreFull, match="the disk is full"):
            await connect(address).ingest(texts(4), batch_item_count=2)


async def test_a_stream_refused_while_it_writes_is_refused_by_name(
    connect: Callable[[str], AnyClient],
) -> None:
    """grpc.aio by itself says INTERNAL three times in four, as its own write has failed."""

    async def ingest(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        raise errors.Unauthenticated(why="the token is unknown")

    async with search_server(ingest=ingest) as (address, _):
        for _ in range(20):
            with pytest.raises(errors.Unauthenticated, match="the token is unknown"):
                await connect(address).ingest(texts(1_000), batch_item_count=4)


async def test_errors_of_the_item_iterator_are_raised(
    connect: Callable[[str], AnyClient],
) -> None:
    """gRPC reads them out of sight and would only say that something was cancelled."""

    def items() -> Iterator[tuple[str, NewContent]]:
        yield "a", "text"
        raise FileNotFoundError("b.png")

    async with search_server() as (address, _):
        with pytest.raises(FileNotFoundError, match=r"b\.png"):
            await connect(address).ingest(items(), batch_item_count=1)


async def test_only_an_unsendable_item_is_refused(
    connect: Callable[[str], AnyClient],
) -> None:
    items: Items = [
        ("a", "text"),
        ("b\ud800", "text"),
        ("c", "half \ud83d"),
        ("d", bytes(70 * 2**20)),
        ("e", "z"),
    ]
    async with search_server(ingest=stored_but_for_the_empty) as (address, _):
        for count in (1, 2, 32):
            outcomes = await connect(address).ingest(items, batch_item_count=count)
            assert [outcome.item_id for outcome in outcomes] == [item[0] for item in items]
            assert [type(outcome.error) for outcome in outcomes] == [
                type(None),
                errors.ItemIdInvalid,
                errors.RequestMalformed,
                errors.ImageTooLarge,
                type(None),
            ]


async def test_a_sender_that_awaits_a_refused_items_outcome_gets_it() -> None:
    answered = threading.Semaphore(1)

    def items() -> Iterator[tuple[str, NewContent]]:
        for text in ("a", "\ud800", "\ud800", "b"):
            assert answered.acquire(timeout=60)
            yield "id", text

    async with search_server(ingest=stored_but_for_the_empty) as (address, _):

        def ingest() -> list[bool]:
            refused = []
            with Client(address) as client:
                for outcome in client.ingest(items(), index_id="scenes", batch_item_count=1):
                    refused.append(outcome.error is not None)
                    answered.release()
            return refused

        assert await asyncio.to_thread(ingest) == [False, True, True, False]


@pytest.mark.parametrize("name", sampled(ODD, fault=lambda name: name.split()[0]))
async def test_a_server_that_is_not_tandem_is_named(
    connect: Callable[[str], AnyClient], name: str
) -> None:
    with odd_server(ODD[name]) as address:
        client = connect(address)
        for call in (client.search("a", 10.0), client.ingest([("a", "text")])):
            with pytest.raises(ODD_ERRORS) as caught:
                await call
            assert "127.0.0.1" in caught.value.message
            assert caught.value.reason != "INTERNAL"
            assert "<html>" not in caught.value.message


ODD_ERRORS = (
    errors.ServerUnknown,
    errors.ServiceUnavailable,
    errors.Unauthenticated,
    errors.PermissionDenied,
)


async def stored_but_for_the_empty(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
    """Stores what has an id."""
    response = pb.IngestItemsResponse()
    for item in request.items:
        result = response.results.add(item_id=item.item_id)
        if not item.item_id:
            result.error.reason = error_reason_pb2.ERROR_REASON_ITEM_ID_INVALID
    return response


async def test_a_sender_may_wait_for_each_answer_before_the_next_item() -> None:
    """Batches of one go out as they are full: waiting for an answer first is not a deadlock."""
    answered = threading.Semaphore(1)

    def items() -> Iterator[tuple[str, NewContent]]:
        for item in texts(5):
            assert answered.acquire(timeout=60)
            yield item  # type: ignore[misc]

    async with search_server() as (address, _):

        def ingest() -> list[str]:
            ids = []
            with Client(address) as client:
                for outcome in client.ingest(items(), index_id="scenes", batch_item_count=1):
                    ids.append(outcome.item_id)
                    answered.release()
            return ids

        assert await asyncio.to_thread(ingest) == [f"item-{n}" for n in range(5)]


async def test_stopping_early_ends_the_call(connect: Callable[[str], AnyClient]) -> None:
    """The server is notified, and no further items are drawn from an endless supply."""
    drawn = []

    def endless() -> Iterator[tuple[str, NewContent]]:
        while True:
            drawn.append(1)
            yield f"item-{len(drawn)}", "word" * 100

    async with search_server() as (address, service):
        outcomes = await connect(address).ingest(endless(), batch_item_count=1, take=2)
        async with asyncio.timeout(60):
            await service.stream_ended.wait()
        await asyncio.sleep(0.2)
        count = len(drawn)
        await asyncio.sleep(0.2)

    assert [outcome.item_id for outcome in outcomes] == ["item-1", "item-2"]
    assert len(drawn) == count


async def test_a_cancelled_ingest_is_cancelled() -> None:
    """The caller's own cancellation is not taken for an error of the items."""

    async def ingest(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        await asyncio.sleep(10)
        return pb.IngestItemsResponse()

    async with search_server(ingest=ingest) as (address, service):
        task = asyncio.create_task(Awaited(address).ingest(texts(1)))
        async with asyncio.timeout(60):
            while not service.requests:  # noqa: ASYNC110 (the request has no event to wait for)
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_a_call_that_cancels_itself_is_not_cancelled_by_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """grpc.aio does so where a call ends just before it is all written, as is made certain here."""

    async def ended(_call: object) -> None:
        raise asyncio.InvalidStateError("the call is over")

    async def ingest(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        await asyncio.sleep(10)
        return pb.IngestItemsResponse()

    monkeypatch.setattr("grpc.aio._call.StreamStreamCall._done_writing", ended)
    async with search_server(ingest=ingest) as (address, _):
        with pytest.raises(errors.ServiceUnavailable, match="the call broke"):
            await Awaited(address).ingest(texts(1))


def test_the_sdk_needs_neither_numpy_nor_torch() -> None:
    """A backend that calls Tandem imports grpc and protobuf and nothing heavier."""
    heavy = {
        *("numpy", "torch", "PIL", "faiss", "lmdb", "structlog", "tokenizers", "tritonclient"),
        *("prometheus_client", "grpc_status", "safetensors"),
    }
    code = "import sys, tandem.client; print(*{name.split('.')[0] for name in sys.modules})"

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    loaded = set(printed.split())
    assert "grpc" in loaded
    assert loaded & heavy == set()
