"""Repeated calls: which, when, and never past the deadline or over the budget."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from tandem import errors
from tandem.client import AsyncClient, Client, RetryPolicy
from tandem.client.calls.refusal import Pushback, pushback_of
from tandem.client.calls.retries import CallAttempts, Retries, RetryThrottle, is_passing
from tandem.errors import ERROR_CLASSES, RETRY_DELAY_KEY, error_from_reason
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import Search, search_server
from tests.support.faults.proxy import Proxy

Answer = TypeVar("Answer")
SOON = RetryPolicy(initial_backoff_seconds=0.001, max_backoff_seconds=0.002)
BUSY = error_from_reason("OVERLOADED", "all seats are taken", {})
BROKEN = errors.ServiceUnavailable(service="127.0.0.1:7400", why="Socket closed")


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attempts(
    policy: RetryPolicy | None = None,
    timeout_seconds: float = 10.0,
    *,
    clock: Clock | None = None,
    share: float = 1.0,
) -> CallAttempts:
    """Returns a repeatable call's attempts; waits are this share of the longest."""
    retries = Retries(policy or RetryPolicy(), clock=clock or Clock(), draw=lambda: share)
    return retries.start(timeout_seconds, is_repeatable=True)


def asking_for(delay: str) -> errors.TandemError:
    """Returns an error whose server names a delay."""
    return error_from_reason("OVERLOADED", "all seats are taken", {RETRY_DELAY_KEY: delay})


@pytest.mark.parametrize(("share", "delays"), [(1.0, [0.1, 0.2, 0.4]), (0.5, [0.05, 0.1, 0.2])])
def test_the_wait_doubles_and_is_random(share: float, delays: list[float]) -> None:
    """Four attempts have three waits between them."""
    call = attempts(share=share)

    assert [call.delay_after(BUSY) for _ in range(4)] == [*map(pytest.approx, delays), None]


def test_a_servers_delay_is_kept_to() -> None:
    call = attempts()

    assert call.delay_after(asking_for("1.250")) == 1.25
    assert call.delay_after(asking_for("0.000")) == 0.0
    assert call.delay_after(BUSY) == pytest.approx(0.1)


def test_a_server_can_forbid_a_repetition() -> None:
    """A call for more than the quota's burst never succeeds."""
    assert attempts().delay_after(asking_for(Pushback.NEVER.value)) is None


def test_all_attempts_have_one_deadline() -> None:
    """What is left of it is the next one's; a wait that would reach it does not begin."""
    clock = Clock()
    call = attempts(timeout_seconds=2.0, clock=clock)

    assert call.timeout_seconds == pytest.approx(2.0)
    clock.now += 1.5
    assert call.timeout_seconds == pytest.approx(0.5)
    assert call.delay_after(asking_for("0.500")) is None
    assert attempts(timeout_seconds=0.5).delay_after(asking_for("0.499")) == 0.499
    clock.now += 5
    assert call.timeout_seconds == 0.0


def test_the_budget_ends_repetitions_until_calls_are_answered_again() -> None:
    """10 tokens: the fifth failure leaves 5, which is not more than half."""
    throttle = RetryThrottle(RetryPolicy(budget_tokens=10, budget_refill=0.5))

    assert [throttle.take() for _ in range(6)] == [True] * 4 + [False] * 2
    for _ in range(6):  # From 4 to 7.
        throttle.note_answer()
    assert [throttle.take() for _ in range(2)] == [True, False]
    for _ in range(100):
        throttle.note_answer()
    assert [throttle.take() for _ in range(5)] == [True] * 4 + [False]


def test_calls_that_fail_with_one_connection_take_one_token() -> None:
    """Those in flight when it broke; attempts that begin later and break too take their own."""
    clock = Clock()
    retries = Retries(RetryPolicy(), clock=clock, draw=lambda: 1.0)
    calls = [retries.start(10, is_repeatable=True) for _ in range(32)]

    clock.now += 0.5
    assert [call.delay_after(BROKEN, is_break=True) for call in calls] == [0.1] * 32
    clock.now += 0.2
    assert [call.delay_after(BROKEN, is_break=True) for call in calls] == [0.2] * 32
    # Of ten tokens eight are left, and a server that answers takes one each time.
    delays = [retries.start(10, is_repeatable=True).delay_after(BUSY) for _ in range(4)]
    assert delays == [0.1, 0.1, None, None]
    # So does a connection that breaks for each call anew.
    assert calls[0].delay_after(BROKEN, is_break=True) is None


def test_errors_of_the_call_cost_no_budget() -> None:
    """A caller with bad texts does not take the others' repetitions."""
    retries = Retries(RetryPolicy(), draw=lambda: 0.0)
    for _ in range(100):
        assert retries.start(10, is_repeatable=True).delay_after(errors.TextEmpty()) is None

    assert retries.start(10, is_repeatable=True).delay_after(BUSY) == 0.0
    # A write that is not repeated counts all the same: the server is as busy.
    assert [retries.start(10, is_repeatable=False).delay_after(BUSY) for _ in range(9)] == [
        None
    ] * 9
    assert retries.start(10, is_repeatable=True).delay_after(BUSY) is None


def test_errors_that_pass_by_themselves_are_repeated() -> None:
    passing = {
        reason for reason in ERROR_CLASSES if is_passing(error_from_reason(reason, "text", {}))
    }

    assert passing == {
        *("MODEL_UNAVAILABLE", "SERVICE_UNAVAILABLE", "OVERLOADED", "QUOTA_EXCEEDED"),
        *("SHARDS_MISSING", "RERANK_UNAVAILABLE", "NEIGHBOURS_UNAVAILABLE"),
    }


class Threaded:
    """Client, in a thread."""

    def __init__(self, address: str, retries: RetryPolicy) -> None:
        self._address, self._retries = address, retries

    async def search(self) -> str:
        """Searches, and returns the model's name."""
        return await self._called(
            lambda client: client.search("two dogs", index_id="scenes").model_fingerprint
        )

    async def stream(self) -> list[bool]:
        """Searches, and returns which answers are final."""
        return await self._called(
            lambda client: [a.is_final for a in client.search_stream("a", index_id="scenes")]
        )

    async def remove(self, request_id: str) -> int:
        """Removes one item."""
        return await self._called(
            lambda client: client.remove(["a"], index_id="s", request_id=request_id).removed_count
        )

    async def remove_index(self) -> int:
        """Removes an index."""
        return await self._called(lambda client: client.remove_index(index_id="s").removed_count)

    async def ingest(self) -> int:
        """Stores one item."""
        return await self._called(
            lambda client: len(list(client.ingest([("a", "b")], index_id="s")))
        )

    async def _called(self, call: Callable[[Client], Answer]) -> Answer:
        def called() -> Answer:
            with Client(self._address, retries=self._retries) as client:
                return call(client)

        return await asyncio.to_thread(called)


class Awaited:
    """AsyncClient."""

    def __init__(self, address: str, retries: RetryPolicy) -> None:
        self._address, self._retries = address, retries

    async def search(self) -> str:
        """As Threaded."""
        async with AsyncClient(self._address, retries=self._retries) as client:
            return (await client.search("two dogs", index_id="scenes")).model_fingerprint

    async def stream(self) -> list[bool]:
        """As Threaded."""
        async with AsyncClient(self._address, retries=self._retries) as client:
            return [a.is_final async for a in client.search_stream("a", index_id="scenes")]

    async def remove(self, request_id: str) -> int:
        """As Threaded."""
        async with AsyncClient(self._address, retries=self._retries) as client:
            return (await client.remove(["a"], index_id="s", request_id=request_id)).removed_count

    async def remove_index(self) -> int:
        """As Threaded."""
        async with AsyncClient(self._address, retries=self._retries) as client:
            return (await client.remove_index(index_id="s")).removed_count

    async def ingest(self) -> int:
        """As Threaded."""
        async with AsyncClient(self._address, retries=self._retries) as client:
            return len([each async for each in client.ingest([("a", "b")], index_id="s")])


Connect = Callable[[str, RetryPolicy], Threaded | Awaited]


@pytest.fixture(name="connect", params=[Threaded, Awaited])
def _connect(request: pytest.FixtureRequest) -> Connect:
    return request.param


def failing(count: int, error: errors.TandemError, *, first: int = 0) -> Search:
    """Returns a search that answers `first` times, fails `count` times, and answers from there."""
    asked: list[object] = []

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        asked.append(request)
        if first < len(asked) <= first + count:
            raise error
        return pb.SearchItemsResponse(model_fingerprint="f1")

    return search


def soon(error_class: type[errors.Overloaded]) -> errors.Overloaded:
    """Returns an error whose sender wants the call in 2 ms."""
    return error_class(what="all seats are taken", retry_delay_seconds=0.002)


async def test_a_busy_server_is_called_again(connect: Connect) -> None:
    async with search_server(failing(2, soon(errors.Overloaded))) as (address, service):
        assert await connect(address, SOON).search() == "f1"

    assert len(service.requests) == 3
    assert len({metadata["x-request-id"] for metadata in service.metadata}) == 1
    assert len({metadata["traceparent"] for metadata in service.metadata}) == 1


@pytest.mark.parametrize("is_async", [True, False])
async def test_calls_on_a_connection_that_breaks_are_all_answered(is_async: bool) -> None:
    """32 in flight, far more than the budget's tokens; the server is still there."""
    in_flight: list[object] = []
    all_there = asyncio.Event()

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        in_flight.append(request)
        if len(in_flight) <= 32:
            if len(in_flight) == 32:
                all_there.set()
            await asyncio.Event().wait()
        return pb.SearchItemsResponse(model_fingerprint="f1")

    async with (
        search_server(search) as (address, _),
        Proxy(int(address.rpartition(":")[2]), random.Random(1)) as proxy,
    ):
        client: AsyncClient | Client = (AsyncClient if is_async else Client)(
            f"127.0.0.1:{proxy.port}"
        )
        with ThreadPoolExecutor(32) as threads:
            loop = asyncio.get_running_loop()
            calls = [
                client.search("a", index_id="s")
                if isinstance(client, AsyncClient)
                else loop.run_in_executor(threads, lambda: client.search("a", index_id="s"))
                for _ in range(32)
            ]
            answers = asyncio.gather(*calls)
            await all_there.wait()
            proxy.cut()
            found = await answers
        closing = client.close()
        if closing is not None:
            await closing

    assert [each.model_fingerprint for each in found] == ["f1"] * 32


async def test_an_error_of_the_call_is_raised_at_once(connect: Connect) -> None:
    async with search_server(failing(1, errors.TextEmpty())) as (address, service):
        with pytest.raises(errors.TextEmpty) as caught:
            await connect(address, SOON).search()

    [metadata] = service.metadata
    assert caught.value.metadata == {
        "request_id": metadata["x-request-id"],
        "trace_id": str(metadata["traceparent"]).split("-")[1],
    }


async def test_a_delay_beyond_the_deadline_is_not_waited_for(connect: Connect) -> None:
    """The error says how long it is; the client has 10 seconds."""
    late = errors.Overloaded(what="all seats are taken", retry_delay_seconds=60.0)
    async with search_server(failing(1, late)) as (address, service):
        with pytest.raises(errors.Overloaded) as caught:
            await connect(address, SOON).search()

    assert len(service.requests) == 1
    assert caught.value.retry_delay_seconds == 60.0
    assert pushback_of(caught.value) == 60.0


@pytest.mark.parametrize(("answered", "asked"), [(0, 3), (1, 1)])
async def test_a_stream_is_repeated_until_its_first_answer(
    connect: Connect, answered: int, asked: int
) -> None:
    search = failing(2, soon(errors.Overloaded), first=answered)
    async with search_server(search) as (address, service):
        client = connect(address, SOON)
        if answered:
            with pytest.raises(errors.Overloaded):
                await client.stream()
        else:
            assert await client.stream() == [False, True]

    assert len(service.requests) == asked


def removing() -> Callable[[pb.RemoveItemsRequest], Awaitable[pb.RemoveItemsResponse]]:
    """Returns a removal that fails once."""
    asked: list[object] = []

    async def remove(request: pb.RemoveItemsRequest) -> pb.RemoveItemsResponse:
        asked.append(request)
        if len(asked) == 1:
            raise errors.ServiceUnavailable(service="shard 1", why="it is gone")
        return pb.RemoveItemsResponse(removed_count=1)

    return remove


async def test_a_removal_is_repeated_only_under_its_request_id(connect: Connect) -> None:
    """Without one a second attempt would count what the first left."""
    async with search_server(remove=removing()) as (address, service):
        assert await connect(address, SOON).remove("mine") == 1
        assert [request.request_id for request in service.requests] == ["mine"] * 2
    async with search_server(remove=removing()) as (address, service):
        with pytest.raises(errors.ServiceUnavailable):
            await connect(address, SOON).remove("")
        assert len(service.requests) == 1


async def test_the_removal_of_an_index_is_not_repeated(connect: Connect) -> None:
    """A second attempt would remove what was ingested since."""
    async with search_server() as (address, service):
        service.index_removal_error = errors.ServiceUnavailable(service="shard 1", why="it is gone")
        with pytest.raises(errors.ServiceUnavailable):
            await connect(address, SOON).remove_index()
    assert len(service.requests) == 1


async def test_an_ingest_is_not_repeated(connect: Connect) -> None:
    """Its items come from an iterator, which gives them once."""

    async def ingest(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        raise soon(errors.Overloaded)

    async with search_server(ingest=ingest) as (address, service):
        with pytest.raises(errors.Overloaded) as caught:
            await connect(address, SOON).ingest()

    assert len(service.requests) == 1
    assert caught.value.metadata["request_id"] == service.metadata[0]["x-request-id"]
