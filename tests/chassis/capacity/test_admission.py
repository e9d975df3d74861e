"""capacity.admission and its interceptor: what is refused, what waits, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.calls.channels import call
from tandem.chassis.capacity.admission import (
    MAX_RETRY_DELAY_SECONDS,
    MIN_RETRY_DELAY_SECONDS,
    Admission,
    AdmissionLimits,
    Pace,
)
from tandem.contract.limits import MAX_MESSAGE_BYTES
from tandem.errors import DeadlineExceeded, MessageTooLarge, Overloaded
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.scripted_service import (
    SEARCH_SERVICE,
    hang,
    nothing_found,
    sample,
    scripted_service,
    until,
)


def inflight_count(service: str) -> float:
    return sample("tandem_rpc_inflight_count", service=service)


def inflight_bytes(service: str) -> float:
    return sample("tandem_rpc_inflight_bytes", service=service)


def refused_count(service: str, limit: str) -> float:
    return sample("tandem_admission_refused_total", service=service, limit=limit)


def picture(byte_count: int) -> pb.SearchItemsRequest:
    """Returns a search whose message is a little larger than `byte_count`."""
    return pb.SearchItemsRequest(query={"image": bytes(byte_count)})


async def test_calls_past_the_limit_are_refused_at_once_and_health_is_not() -> None:
    limits = AdmissionLimits(max_inflight_count=2)
    async with scripted_service(hang, name="full", limits=limits) as channel:
        search = SearchServiceStub(channel).SearchItems
        taken = [search(pb.SearchItemsRequest(), timeout=60) for _ in range(2)]
        await until(lambda: inflight_count("full") == 2)

        with pytest.raises(
            Overloaded, match="full serves 2 calls already, 2 of this caller; retry with backoff"
        ):
            await call(search, pb.SearchItemsRequest(), service="full", timeout_seconds=60)
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=5
        )

        for call_in_flight in taken:
            call_in_flight.cancel()
        await until(lambda: inflight_count("full") == 0)
        with pytest.raises(DeadlineExceeded):
            await call(search, pb.SearchItemsRequest(), service="full", timeout_seconds=0.1)

    assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert refused_count("full", "count") == 1


async def test_a_caller_over_its_share_is_refused_slowly_while_others_ask() -> None:
    """So that one that repeats at once leaves others the time; who is alone hears at once."""
    admission = Admission("slowing", AdmissionLimits(max_inflight_count=2))
    loop = asyncio.get_running_loop()

    async def refusal_seconds() -> float:
        start_time = loop.time()
        with pytest.raises(Overloaded, match="2 calls already, 2 of this caller"):
            await admission.begin_call("one")
        return loop.time() - start_time

    with admission.call("one"), admission.call("one"):
        at_once = min([await refusal_seconds() for _ in range(3)])
        await admission.begin_call("other")
        slowed = await refusal_seconds()

    assert at_once < 0.2 < slowed


async def test_a_full_service_refuses_before_it_has_read_the_request() -> None:
    """A caller whose request would take long to send gets the refusal at once."""
    limits = AdmissionLimits(max_inflight_count=1)
    is_taken = asyncio.Event()

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        is_taken.set()
        return await hang(request, context)

    async with scripted_service(search, name="early", limits=limits) as channel:
        taken = SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)
        await is_taken.wait()

        # As a stream, of which nothing is ever sent: the answer cannot have waited for it.
        unsent = channel.stream_unary(f"/{SEARCH_SERVICE}/SearchItems")(timeout=60)
        assert await unsent.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        taken.cancel()


async def test_bytes_of_requests_are_bounded() -> None:
    limits = AdmissionLimits(max_inflight_bytes=1_000_000)
    async with scripted_service(hang, name="heavy", limits=limits) as channel:
        search = SearchServiceStub(channel).SearchItems
        first = search(picture(2_000_000), timeout=60)
        await until(lambda: inflight_bytes("heavy") > 2_000_000)

        with pytest.raises(Overloaded, match="bytes of requests in flight"):
            await call(search, picture(1), service="heavy", timeout_seconds=60)
        first.cancel()
        await until(lambda: inflight_count("heavy") == 0)

        second = search(picture(400_000), timeout=60)
        await until(lambda: inflight_bytes("heavy") > 400_000)
        with pytest.raises(Overloaded):
            await call(search, picture(700_000), service="heavy", timeout_seconds=60)
        with pytest.raises(DeadlineExceeded):  # admitted: positive control
            await call(search, picture(100_000), service="heavy", timeout_seconds=0.2)
        second.cancel()
        await until(lambda: inflight_bytes("heavy") == 0)

    assert refused_count("heavy", "bytes") == 2


async def test_a_batch_of_searches_takes_as_many_places() -> None:
    """Up to a fourth of all, so that a large batch gets in at all."""
    limits = AdmissionLimits(
        max_inflight_count=8, call_weights={"SearchItems": lambda request: len(request.index_id)}
    )
    async with scripted_service(hang, name="weighed", limits=limits) as channel:
        search = SearchServiceStub(channel).SearchItems
        taken = [search(pb.SearchItemsRequest(index_id="x" * 50), timeout=60) for _ in range(4)]
        await until(lambda: inflight_count("weighed") == 4)

        with pytest.raises(Overloaded, match="serves 8 calls"):
            await call(search, pb.SearchItemsRequest(), service="weighed", timeout_seconds=60)
        for each in taken:
            each.cancel()
        await until(lambda: inflight_count("weighed") == 0)
        await _fills(search, 8, "weighed")


async def _fills(search: grpc.aio.UnaryUnaryMultiCallable, count: int, service: str) -> None:
    """Asserts that `count` light calls fit: every place was given back."""
    taken = [search(pb.SearchItemsRequest(), timeout=60) for _ in range(count)]
    await until(lambda: inflight_count(service) == count)
    with pytest.raises(Overloaded):
        await call(search, pb.SearchItemsRequest(), service=service, timeout_seconds=60)
    for each in taken:
        each.cancel()


async def test_neither_streams_nor_calls_take_the_others_places() -> None:
    limits = AdmissionLimits(max_inflight_count=1, max_stream_count=1)
    async with scripted_service(nothing_found, name="both", limits=limits) as channel:
        stub = SearchServiceStub(channel)
        stream = stub.IngestItems(timeout=60)
        for _ in range(3):
            await stream.write(pb.IngestItemsRequest())
            await stream.read()

        await call(stub.SearchItems, pb.SearchItemsRequest(), service="both", timeout_seconds=60)
        second = stub.IngestItems(timeout=60)
        assert await second.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        third = stub.IngestItems(timeout=60)
        await third.done_writing()
        assert await third.read() is grpc.aio.EOF

    assert refused_count("both", "streams") == 1


async def test_a_streams_messages_wait_for_room_and_are_not_refused() -> None:
    release = asyncio.Event()
    begun: list[str] = []

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        begun.append(request.index_id)
        await release.wait()
        return pb.SearchItemsResponse()

    limits = AdmissionLimits(max_stream_message_count=1)
    async with scripted_service(search, name="held", limits=limits) as channel:
        streams = [
            SearchServiceStub(channel).IngestItems(one_batch(name), timeout=60) for name in "ab"
        ]
        await until(lambda: len(begun) == 1)
        await asyncio.sleep(0.1)  # time enough for the other, were it let in
        assert len(begun) == 1
        release.set()
        for stream in streams:
            assert len([answer async for answer in stream]) == 1

    assert sorted(begun) == ["a", "b"]


async def test_a_broken_stream_releases_its_room() -> None:
    limits = AdmissionLimits(max_stream_count=1, max_stream_message_count=1)
    async with scripted_service(hang, name="broken", limits=limits) as channel:
        for _ in range(3):
            stream = SearchServiceStub(channel).IngestItems(one_batch("a"), timeout=60)
            await until(lambda: sample("tandem_rpc_inflight_bytes", service="broken") > 0)
            stream.cancel()
            await until(lambda: inflight_count("broken") == 0)
            assert sample("tandem_rpc_inflight_bytes", service="broken") == 0


async def one_batch(index_id: str) -> AsyncIterator[pb.IngestItemsRequest]:
    yield pb.IngestItemsRequest(index_id=index_id)


async def test_a_refusal_says_when_to_retry() -> None:
    """In RetryInfo, later for each that was refused since, and within bounds."""
    limits = AdmissionLimits(max_inflight_count=1)
    async with scripted_service(hang, name="paced", limits=limits) as channel:
        search = SearchServiceStub(channel).SearchItems
        taken = search(pb.SearchItemsRequest(), timeout=60)
        await until(lambda: inflight_count("paced") == 1)

        delays = []
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await search(pb.SearchItemsRequest(), timeout=60)
            delays.append(retry_delay_seconds(caught.value))
        taken.cancel()

    assert all(MIN_RETRY_DELAY_SECONDS <= each <= MAX_RETRY_DELAY_SECONDS for each in delays)


async def test_a_refusal_keeps_its_delay_through_a_service_in_between() -> None:
    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        raise Overloaded(what="the service behind", retry_delay_seconds=1.25)

    async with scripted_service(search) as behind:
        method = SearchServiceStub(behind).SearchItems

        async def relay(
            request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
        ) -> pb.SearchItemsResponse:
            return await call(method, request, service="behind", timeout_seconds=60)

        async with scripted_service(relay) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)

    assert retry_delay_seconds(caught.value) == 1.25


async def test_a_message_that_is_too_large_is_refused_for_good() -> None:
    """gRPC itself refuses it, with no reason of ours; the message says that retrying is no use."""
    async with scripted_service(nothing_found) as channel:
        with pytest.raises(MessageTooLarge, match="larger than max"):
            await call(
                SearchServiceStub(channel).SearchItems,
                picture(MAX_MESSAGE_BYTES + 1),
                service="scripted",
                timeout_seconds=10,
            )


def retry_delay_seconds(error: grpc.aio.AioRpcError) -> float:
    """Returns what RetryInfo says; fails where there is none."""
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    metadata = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    return retry.retry_delay.ToTimedelta().total_seconds()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_retry_delays_follow_the_rate_at_which_calls_end() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(400):
        clock.time += 0.05
        pace.note_end()

    delays = [pace.retry_delay_seconds() for _ in range(300)]

    assert delays[0] == pytest.approx(0.05, rel=0.05)
    assert delays[19] == pytest.approx(1.0, rel=0.05)
    assert delays[-1] == MAX_RETRY_DELAY_SECONDS
    clock.time += 60.0
    pace.note_end()
    assert pace.retry_delay_seconds() == pytest.approx(2.0, rel=0.05)  # who was told has been


def test_without_finished_calls_the_delay_is_the_longest() -> None:
    assert Pace(Clock()).retry_delay_seconds() == MAX_RETRY_DELAY_SECONDS
