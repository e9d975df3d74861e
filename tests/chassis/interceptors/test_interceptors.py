"""interceptors: what happens around a call, on a real connection."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import cast

import grpc
import pytest
import structlog
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tandem.chassis.calls.channels import call
from tandem.chassis.interceptors.observation import code_name
from tandem.chassis.telemetry import log
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.deadline import Deadline
from tandem.errors import IndexNotFound
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.chassis.scripted_service import (
    SEARCH_SERVICE,
    hang,
    nothing_found,
    sample,
    scripted_service,
    until,
)


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    """What the service logs."""
    stream = io.StringIO()
    log.configure("scripted", stream)
    yield stream
    structlog.reset_defaults()


def events(stream: io.StringIO) -> list[dict[str, object]]:
    """Returns the log's lines."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def refuse(
    request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """The search that knows no index."""
    raise IndexNotFound(index_id=request.index_id)


async def crash(
    request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """The search with a mistake in it."""
    raise KeyError("the inside of the service")


async def batches(*requests: pb.IngestItemsRequest) -> AsyncIterator[pb.IngestItemsRequest]:
    """Sends `requests` as a stream."""
    for request in requests:
        yield request


async def test_bytes_that_are_not_a_message_end_a_stream_after_the_good_ones() -> None:
    async def requests() -> AsyncIterator[bytes]:
        yield pb.IngestItemsRequest(index_id="scenes").SerializeToString()
        yield b"\x0a\x01\xff"

    async with scripted_service(nothing_found) as channel:
        stream = channel.stream_stream(f"/{SEARCH_SERVICE}/IngestItems")(requests(), timeout=60)
        assert await stream.read() == b""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()

    assert dict(caught.value.trailing_metadata())["tandem-reason"] == "REQUEST_MALFORMED"


async def test_a_stream_answers_batch_by_batch() -> None:
    """The interceptors neither hold back nor lose anything."""
    sent = [
        pb.IngestItemsRequest(index_id="scenes", items=[{"item_id": str(number)}])
        for number in range(50)
    ]

    async with scripted_service(nothing_found) as channel:
        stream = SearchServiceStub(channel).IngestItems(batches(*sent), timeout=60)
        answers = [answer.results[0].item_id async for answer in stream]
        trailing = dict(await stream.trailing_metadata())

    assert answers == [str(number) for number in range(50)]
    assert trailing["x-request-id"]


async def test_an_error_in_a_stream_reaches_its_caller() -> None:
    async with scripted_service(refuse) as channel:
        stream = SearchServiceStub(channel).IngestItems(
            batches(pb.IngestItemsRequest(index_id="scenes")), timeout=5
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()

    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert dict(caught.value.trailing_metadata())["tandem-reason"] == "INDEX_NOT_FOUND"


async def test_a_mistake_of_ours_is_logged_and_not_shown(log_stream: io.StringIO) -> None:
    async with scripted_service(crash) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)

    trailing = dict(caught.value.trailing_metadata())
    fault = next(event for event in events(log_stream) if event["event"] == "internal fault")
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert "the inside of the service" not in caught.value.details()
    assert str(fault["exception"]).endswith("\nKeyError")  # what it says may be what was asked
    assert "in crash\n" in str(fault["exception"])
    assert fault["request_id"] == trailing["x-request-id"]


@pytest.mark.parametrize("offered", ["7b0c-4.A:z_"])
async def test_a_good_request_id_is_kept(offered: str) -> None:
    async with scripted_service(nothing_found) as channel:
        answer = SearchServiceStub(channel).SearchItems(
            pb.SearchItemsRequest(), timeout=60, metadata=(("x-request-id", offered),)
        )
        trailing = dict(await answer.trailing_metadata())

    assert trailing["x-request-id"] == offered


@pytest.mark.parametrize("offered", [None, "x" * 129, 'a"b'])
async def test_without_a_good_request_id_there_is_a_new_one(offered: str | None) -> None:
    metadata = () if offered is None else (("x-request-id", offered),)
    async with scripted_service(nothing_found) as channel:
        answer = SearchServiceStub(channel).SearchItems(
            pb.SearchItemsRequest(), timeout=60, metadata=metadata
        )
        trailing = dict(await answer.trailing_metadata())

    assert re.fullmatch("[0-9a-f]{32}", trailing["x-request-id"])


async def test_a_request_keeps_its_id_from_service_to_service(log_stream: io.StringIO) -> None:
    async with scripted_service(nothing_found, name="behind") as behind:

        async def search(
            request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
        ) -> pb.SearchItemsResponse:
            method = SearchServiceStub(behind).SearchItems
            return await call(method, request, service="behind", timeout_seconds=60)

        async with scripted_service(search) as channel:
            await SearchServiceStub(channel).SearchItems(
                pb.SearchItemsRequest(), timeout=60, metadata=(("x-request-id", "one"),)
            )

    served = [event for event in events(log_stream) if event["event"] == "call served"]
    assert [event["request_id"] for event in served] == ["one", "one"]


async def test_one_log_line_a_call_with_nothing_of_its_content(log_stream: io.StringIO) -> None:
    """What, how it ended, how long, who; and the reason where it failed."""
    async with scripted_service(refuse) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await SearchServiceStub(channel).SearchItems(
                pb.SearchItemsRequest(query={"text": "my secret"}), timeout=5
            )

    # A line is written after its answer.
    await until(lambda: bool(events(log_stream)))
    (event,) = events(log_stream)
    assert (
        event.items()
        >= {
            "event": "call served",
            "level": "info",
            "service": "scripted",
            "method": "SearchItems",
            "code": "NOT_FOUND",
            "reason": "INDEX_NOT_FOUND",
        }.items()
    )
    assert event.keys() >= {"time", "duration_seconds", "peer", "request_id"}
    assert "my secret" not in log_stream.getvalue()


async def test_calls_are_timed_by_method_and_code() -> None:
    """Refused ones too; methods that do not exist make no label."""
    async with scripted_service(refuse, name="timed") as channel:
        stub = SearchServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.SearchItems(pb.SearchItemsRequest(), timeout=60)
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(f"/{SEARCH_SERVICE}/Invented")(b"", timeout=60)
        assert [answer async for answer in stub.IngestItems(batches(), timeout=60)] == []

    counted = {
        (point.labels["method"], point.labels["code"]): point.value
        for family in REGISTRY.collect()
        for point in family.samples
        if point.name == "tandem_rpc_duration_seconds_count" and point.labels["service"] == "timed"
    }
    assert counted == {("SearchItems", "NOT_FOUND"): 1, ("IngestItems", "OK"): 1}


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED"])
async def test_abandoned_work_is_cancelled_and_counted(code: str) -> None:
    async def check(factor: float) -> None:
        name = f"left_{code.lower()}_{factor}"
        async with scripted_service(hang, name=name) as channel:
            answer = SearchServiceStub(channel).SearchItems(
                pb.SearchItemsRequest(), timeout=1.0 * factor if code == "DEADLINE_EXCEEDED" else 60
            )
            if code == "CANCELLED":
                await until(lambda: sample("tandem_rpc_inflight_count", service=name) == 1)
                answer.cancel()

            assert (await answer.code()).name == code
            count = "tandem_rpc_duration_seconds_count"
            labels = {"service": name, "method": "SearchItems", "code": code}
            await until(lambda: sample(count, **labels) == 1)

    await holds_with_longer_times(check)


async def test_a_call_that_reaches_us_late_is_counted_as_its_caller_counts_it() -> None:
    async def check(factor: float) -> None:
        name = f"late_{factor}"
        async with scripted_service(hang, name=name) as channel:
            # What gRPC does at the caller when its clock runs out, a little before ours does.
            seconds = 0.5 * factor
            answer = SearchServiceStub(channel).SearchItems(
                pb.SearchItemsRequest(), timeout=seconds
            )
            await asyncio.sleep(seconds - 0.02)
            answer.cancel()

            labels = {"service": name, "method": "SearchItems", "code": "DEADLINE_EXCEEDED"}
            await until(lambda: sample("tandem_rpc_duration_seconds_count", **labels) == 1)

    await holds_with_longer_times(check)


async def test_the_time_left_is_the_callers() -> None:
    lefts: list[float] = []

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        lefts.append(Deadline.of_call(context, default_seconds=7.0).left())
        return pb.SearchItemsResponse()

    async with scripted_service(search) as channel:
        await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)
        await SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest())

    assert 30 < lefts[0] < 60.1  # gRPC rounds timeouts up
    assert lefts[1] == pytest.approx(7.0, abs=1.0)


async def test_reflection_lists_the_services() -> None:
    """So that grpcurl and buf curl work with no proto at hand."""
    async with scripted_service(nothing_found) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        stream = stub.ServerReflectionInfo(timeout=60)
        await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await stream.read()
        await stream.done_writing()

    names = {service.name for service in answer.list_services_response.service}
    assert names == {
        SEARCH_SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_a_message_as_large_as_a_batch_of_pictures_passes() -> None:
    """gRPC's own limit is 4 MiB."""
    async with scripted_service(nothing_found) as channel:
        request = pb.SearchItemsRequest(query={"image": bytes(31 * 1024 * 1024)})
        await call(
            SearchServiceStub(channel).SearchItems, request, service="scripted", timeout_seconds=10
        )


class Ended:
    """All that the name of a code is read from: a call's context, with what a handler has set."""

    def __init__(self, code: grpc.StatusCode | int) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode | int:
        return self._code


@pytest.mark.parametrize("fault", [GeneratorExit(), grpc.aio.InternalError()])
def test_a_caller_that_cannot_be_answered_has_gone(fault: BaseException) -> None:
    assert code_name(cast(grpc.aio.ServicerContext, Ended(0)), fault) == "CANCELLED"


def test_an_aborted_call_keeps_its_code_after_the_caller_left() -> None:
    context = cast(grpc.aio.ServicerContext, Ended(grpc.StatusCode.UNAUTHENTICATED))

    assert code_name(context, grpc.aio.InternalError()) == "UNAUTHENTICATED"
