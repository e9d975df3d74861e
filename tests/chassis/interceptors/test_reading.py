"""What a caller can cost before it is known, before it has sent anything, and by what it sends."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tandem.chassis.calls.channels import SERVER_OPTIONS, open_channel
from tandem.chassis.capacity.admission import DEFAULT_LIMITS
from tandem.client import AsyncClient
from tandem.client.calls.retries import NO_RETRIES
from tandem.errors import TextEmpty
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.chassis.open_door import (
    BATCH,
    CHECK,
    INGEST,
    REFLECTION,
    SEARCH,
    WATCH,
    address,
    connection,
    raw,
    refusal,
)
from tests.support.chassis.raw_http2 import (
    SETTINGS,
    call_frames,
    ended_streams,
    frame,
    opened,
)
from tests.support.chassis.scripted_service import until
from tests.support.client.search_server import search_server

TOKEN = (("authorization", "Bearer token"),)
TOKENS = f"""
[tokens.someone]
sha256 = "{sha256(b"token").hexdigest()}"
scopes = ["search", "write"]
indexes = ["*"]
requests_per_second = 10
"""


async def first_refusals(calls: Sequence[Any], count: int) -> list[str]:
    """Waits until so many of the calls have ended, and returns how."""

    async def end(call: Any) -> str:
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:  # A status comes after the answers.
                pass
        return await refusal(call)

    ends = [asyncio.create_task(end(each)) for each in calls]
    try:
        await until(lambda: sum(each.done() for each in ends) >= count, timeout_seconds=60)
        return [each.result() for each in ends if each.done()]
    finally:
        for each in ends:
            each.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    """Reads the tokens, for whose quotas time stands still."""
    path = tmp_path / "tokens.toml"
    path.write_text(TOKENS)
    return Guard(TokenFile(path, clock=lambda: 0.0))


async def test_an_unknown_caller_is_refused_before_it_sends_a_message(guard: Guard) -> None:
    async with address(guard) as to, connection(to) as channel:
        for path in (SEARCH, BATCH, INGEST):
            assert await refusal(raw(channel, path)()) == "UNAUTHENTICATED", path
        await SearchServiceStub(channel).SearchItems(
            pb.SearchItemsRequest(), metadata=TOKEN, timeout=10
        )


async def test_a_large_message_of_a_stranger_is_refused_by_name(guard: Guard) -> None:
    """The refusal arrives during the upload: the client reads why it was refused."""
    picture = pb.SearchItemsRequest(query={"image": bytes(8 << 20)})
    async with address(guard) as to, connection(to) as channel:
        for _ in range(10):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await SearchServiceStub(channel).SearchItems(picture, timeout=60)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_compressed_requests_are_refused(guard: Guard) -> None:
    request = pb.SearchItemsRequest(index_id="a" * 60)
    async with address(guard) as to, connection(to) as channel:
        search = SearchServiceStub(channel).SearchItems
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await search(request, metadata=TOKEN, compression=grpc.Compression.Gzip, timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await search(request, metadata=TOKEN, timeout=60)


BOMBS = {
    "empty searches": (BATCH, b"\x0a\x00" * 1_000_000, "BATCH_SIZE_OUT_OF_RANGE"),
    "empty parts": (SEARCH, b"\x62\x00" * 1_000_000, "MESSAGE_TOO_LARGE"),
    "41 MiB": (SEARCH, b"\x0a\x80\x80\xc0\x14" + bytes(41 << 20), "MESSAGE_TOO_LARGE"),
    "a probe of 1 MiB": (CHECK, b"\x0a\x80\x80\x40" + bytes(1 << 20), "MESSAGE_TOO_LARGE"),
    "no message": (SEARCH, b"\xff" * 100, "REQUEST_MALFORMED"),
    "no reflection": (REFLECTION, b"\xff" * 100, "REQUEST_MALFORMED"),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_an_oversized_message_is_refused_unparsed(name: str) -> None:
    path, body, reason = BOMBS[name]
    async with address() as to, connection(to) as channel:
        assert await refusal(raw(channel, path)(iter([body]))) == reason


async def test_a_refused_messages_memory_is_freed_at_once() -> None:
    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        held = request.index_id.encode()
        try:
            raise ValueError(len(held))
        except ValueError as error:
            raise TextEmpty from error

    large = pb.SearchItemsRequest(index_id="a" * 1_000_000).SerializeToString()
    async with address(search=search) as to, connection(to) as channel:
        for path, body, reason in (
            (SEARCH, large, "TEXT_EMPTY"),
            (SEARCH, large[:-1], "REQUEST_MALFORMED"),
            (BATCH, b"\x0a\x00" * 500_000, "BATCH_SIZE_OUT_OF_RANGE"),
        ):
            method = raw(channel, path)
            assert await held_bytes(method, body, reason, 10) < 1_500_000, (path, reason)
        # Nor does a call itself stay, of which there may be very many.
        assert await held_bytes(raw(channel, SEARCH), b"\xff", "REQUEST_MALFORMED", 300) < 1_000_000


async def held_bytes(
    method: grpc.aio.StreamStreamMultiCallable, body: bytes, reason: str, count: int
) -> int:
    """Returns what is held of so many calls that ended for the reason, and of their caller."""
    await refusal(method(iter([body])))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(count):
            assert await refusal(method(iter([body]))) == reason
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_a_message_that_never_arrives_times_out() -> None:
    wait_seconds = 0.0

    async def slow(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        await asyncio.sleep(2 * wait_seconds)
        return pb.SearchItemsResponse()

    async def check(factor: float) -> None:
        nonlocal wait_seconds
        wait_seconds = 0.3 * factor
        limits = replace(
            DEFAULT_LIMITS,
            max_message_wait_seconds=wait_seconds,
            max_probe_wait_seconds=wait_seconds,
        )
        async with address(limits=limits, search=slow) as to, connection(to) as channel:
            assert await refusal(raw(channel, SEARCH)()) == "DEADLINE_EXCEEDED"
            for path in (CHECK, WATCH, REFLECTION):
                assert await refusal(raw(channel, path)()) == "UNIMPLEMENTED", path
            await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)

    await holds_with_longer_times(check)


async def test_a_call_without_a_message_is_refused() -> None:
    async with address() as to, connection(to) as channel:
        assert await refusal(raw(channel, SEARCH)(iter([]))) == "REQUEST_MALFORMED"


async def test_calls_that_wait_for_their_message_have_so_many_places() -> None:
    limits = replace(DEFAULT_LIMITS, max_awaited_count=5)
    async with address(limits=limits) as to, connection(to) as channel:
        calls = [raw(channel, SEARCH)() for _ in range(8)]
        assert await first_refusals(calls, 3) == ["OVERLOADED"] * 3
        for each in calls[:3]:
            each.cancel()
        await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)
        for each in calls:
            each.cancel()


async def test_probes_are_answered_next_to_silent_callers() -> None:
    limits = replace(DEFAULT_LIMITS, max_probe_count=4)
    asked = health_pb2.HealthCheckRequest(service="liveness")
    async with AsyncExitStack() as stack:
        to = await stack.enter_async_context(address(limits=limits))
        hostile, other = [await stack.enter_async_context(connection(to)) for _ in range(2)]
        watches = [raw(hostile, WATCH)(iter([b""])) for _ in range(3)]
        listed = [raw(hostile, REFLECTION)() for _ in range(6)]
        checks = [raw(hostile, CHECK)() for _ in range(6)]
        for calls in ([*watches, *listed], checks):
            count = len(calls) - 4
            assert await first_refusals(calls, count) == ["UNIMPLEMENTED"] * count
        for channel in (hostile, other):
            await health_pb2_grpc.HealthStub(channel).Check(asked, timeout=60)
        watch = health_pb2_grpc.HealthStub(other).Watch(asked)
        await asyncio.wait_for(watch.read(), 60)
        for each in (*watches, *listed, *checks, watch):
            each.cancel()


async def test_a_client_that_watches_health_needs_no_place(guard: Guard) -> None:
    limits = replace(DEFAULT_LIMITS, max_probe_count=1)
    async with address(guard, limits) as to, connection(to) as hostile:
        for _ in range(2):
            held = raw(hostile, WATCH)(iter([b""]))
            await held.read()
            async with open_channel(to) as channel:
                for _ in range(2):
                    stub = SearchServiceStub(channel)
                    await stub.SearchItems(pb.SearchItemsRequest(), metadata=TOKEN, timeout=60)
                    held.cancel()
                    held = raw(hostile, WATCH)(iter([b""]))
            held.cancel()


async def test_watches_whose_answers_are_not_read_keep_no_client_out() -> None:
    """Nothing can end them, since no status passes an unread answer; so newer ones are refused."""
    limits = replace(DEFAULT_LIMITS, max_probe_count=4)
    no_window = frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0")
    async with address(limits=limits) as to:
        with opened(int(to.rpartition(":")[2])) as hostile:
            hostile.sendall(no_window)
            for number in range(1, 41, 2):
                hostile.sendall(call_frames(number, WATCH.encode()))
            ended = await asyncio.to_thread(ended_streams, hostile, 16, 60)
            assert len(ended) == 16
            async with open_channel(to) as channel, connection(to) as other:
                await health_pb2_grpc.HealthStub(other).Check(
                    health_pb2.HealthCheckRequest(service="liveness"), timeout=60
                )
                assert await refusal(raw(other, WATCH)(iter([b""]))) == "UNIMPLEMENTED"
                await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)


async def test_the_watch_of_a_known_connection_goes_last(guard: Guard) -> None:
    """A stranger's, that began at the same time, is the control."""
    limits = replace(DEFAULT_LIMITS, max_probe_count=4)
    async with (
        address(guard, limits) as to,
        connection(to) as known,
        connection(to) as strange,
    ):
        watches = [raw(each, WATCH)(iter([b""])) for each in (known, strange)]
        for each in watches:
            await each.read()
        await SearchServiceStub(known).SearchItems(
            pb.SearchItemsRequest(), metadata=TOKEN, timeout=60
        )
        flood = [raw(strange, WATCH)(iter([b""])) for _ in range(20)]
        # All but three of the flood, and the stranger's first.
        assert await first_refusals([*flood, watches[1]], 18) == ["UNIMPLEMENTED"] * 18
        assert not watches[0].done()
        for each in (watches[0], *flood):
            each.cancel()


async def test_one_connection_has_so_many_calls(guard: Guard) -> None:
    """Half as many at once are always served; more are, or can be repeated."""
    most = dict(SERVER_OPTIONS)["grpc.max_concurrent_streams"]
    assert most <= 512
    # Without it, calls that are reset at once wait before everybody else's.
    assert "grpc.http.overload_protection" not in dict(SERVER_OPTIONS)
    async with address(guard) as to, connection(to) as channel:
        places = asyncio.Semaphore(most // 2)

        async def one() -> str:
            async with places:
                return await refusal(raw(channel, SEARCH)())

        assert set(await asyncio.gather(*(one() for _ in range(1_000)))) == {"UNAUTHENTICATED"}
        calls = [raw(channel, SEARCH)() for _ in range(1_000)]
        assert {await refusal(each) for each in calls} <= {"UNAUTHENTICATED", "UNAVAILABLE"}


async def test_a_client_makes_a_thousand_searches_at_once() -> None:
    async with (
        search_server() as (to, _),
        AsyncClient(to, 60.0, retries=NO_RETRIES) as client,
    ):
        searches = (client.search("a dog", index_id="scenes") for _ in range(1_000))
        assert len(await asyncio.gather(*searches)) == 1_000


async def test_a_batch_uses_its_number_of_searches_of_the_quota(guard: Guard) -> None:
    def batch(count: int) -> pb.BatchSearchItemsRequest:
        return pb.BatchSearchItemsRequest(searches=[pb.SearchItemsRequest()] * count)

    async with address(guard) as to, connection(to) as channel:
        search_batch = SearchServiceStub(channel).BatchSearchItems

        async def told(count: int) -> str:
            try:
                await search_batch(batch(count), metadata=TOKEN, timeout=60)
            except grpc.aio.AioRpcError as error:
                return error.details() or ""
            return ""

        assert "request at most 10 at once" in await told(11)
        assert await told(6) == ""
        assert "retry in" in await told(6)
