"""Calls of a process to its own server meet what calls over a connection meet.

Tokens and quotas are in test_auth.py, for both; what HTTP callers see is in tests/gateway_svc.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from tandem.chassis.access.guard import Guard
from tandem.chassis.calls.channels import call, open_channel
from tandem.chassis.calls.status import error_from_rpc
from tandem.chassis.capacity.admission import DEFAULT_LIMITS, AdmissionLimits
from tandem.chassis.health.health import LIVENESS, Health
from tandem.chassis.serve.direct_channel import DirectChannel
from tandem.chassis.serve.server import make_server
from tandem.chassis.telemetry.request_id import current_request_id
from tandem.chassis.telemetry.tracing import current_trace
from tandem.errors import IndexNotFound, Overloaded, TandemError
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceStub,
    add_SearchServiceServicer_to_server,
)
from tests.support.chassis.scripted_service import (
    SEARCH_SERVICE,
    ScriptedSearch,
    Search,
    nothing_found,
    sample,
    until,
)

SEARCH = f"/{SEARCH_SERVICE}/SearchItems"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


@dataclass(frozen=True)
class BothWays:
    """One server, called over a connection and directly."""

    connected: grpc.aio.Channel
    direct: DirectChannel

    async def outcomes(self, request: pb.SearchItemsRequest, seconds: float = 60.0) -> list[str]:
        """Returns how a search ends each way: by its error's name, text and members, or not."""
        return [await _outcome(channel, request, seconds) for channel in self.all()]

    def all(self) -> tuple[Any, Any]:
        """Returns both channels."""
        return self.connected, self.direct


async def _outcome(channel: Any, request: pb.SearchItemsRequest, seconds: float) -> str:
    stub = SearchServiceStub(channel)
    try:
        await call(stub.SearchItems, request, service="told", timeout_seconds=seconds)
    except TandemError as error:
        return f"{error.status} {error.reason} {error.message} {error.metadata}"
    return ""


@asynccontextmanager
async def both_ways(
    search: Search, limits: AdmissionLimits = DEFAULT_LIMITS, name: str = "both"
) -> AsyncIterator[BothWays]:
    """Serves `search` on a free port."""
    server = await make_server(
        name,
        Health(name, [SEARCH_SERVICE]),
        lambda server: add_SearchServiceServicer_to_server(ScriptedSearch(search), server),
        [SEARCH_SERVICE],
        limits,
        guard=Guard(),
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield BothWays(channel, server.direct_channel())
    finally:
        await server.stop(None)


async def test_errors_are_the_same_both_ways() -> None:
    async def search(request: pb.SearchItemsRequest, _: Any) -> pb.SearchItemsResponse:
        match request.index_id:
            case "none":
                raise IndexNotFound(index_id=request.index_id)
            case "fault":
                raise RuntimeError("a secret")
            case "late":
                await asyncio.sleep(60)
        return pb.SearchItemsResponse()

    async with both_ways(search) as ways:
        found = {
            index_id: await ways.outcomes(pb.SearchItemsRequest(index_id=index_id), seconds)
            for index_id, seconds in (("none", 60), ("fault", 60), ("late", 0.2), ("good", 60))
        }
        large = pb.SearchItemsRequest(consistency_tokens=[""] * 40_000)
        found["large"] = await ways.outcomes(large)

    for index_id, (connected, direct) in found.items():
        assert direct == connected, index_id
    assert found["none"][1].startswith("NOT_FOUND INDEX_NOT_FOUND")
    assert found["fault"][1].startswith("INTERNAL")
    assert "secret" not in found["fault"][1]
    assert found["late"][1].startswith("DEADLINE_EXCEEDED")
    assert "MESSAGE_TOO_LARGE" in found["large"][1]
    assert found["good"] == ["", ""]


async def test_both_ways_share_their_places_and_are_counted_together() -> None:
    """A call that holds the only place keeps the other way out, and each is in the metrics."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def search(_: pb.SearchItemsRequest, __: Any) -> pb.SearchItemsResponse:
        began.set()
        await may_end.wait()
        return pb.SearchItemsResponse()

    def served() -> list[float]:
        labels = {"service": "shared", "method": "SearchItems"}
        return [
            sample("tandem_rpc_duration_seconds_count", code=code, **labels)
            for code in ("OK", "RESOURCE_EXHAUSTED")
        ]

    async with both_ways(search, AdmissionLimits(max_inflight_count=1), "shared") as ways:
        for holder, other in (ways.all(), ways.all()[::-1]):
            expected = [each + 1 for each in served()]
            began.clear()
            may_end.clear()
            held = asyncio.ensure_future(_outcome(holder, pb.SearchItemsRequest(), 60))
            await began.wait()
            refusal = await _outcome(other, pb.SearchItemsRequest(), 60)
            may_end.set()
            assert await held == ""
            assert refusal.startswith("RESOURCE_EXHAUSTED OVERLOADED")
            while served() != expected:  # noqa: ASYNC110 (a metric)
                await asyncio.sleep(0.01)


async def test_a_call_has_a_request_id_a_trace_and_a_line_in_the_log() -> None:
    seen: dict[str, str] = {}

    async def search(_: pb.SearchItemsRequest, __: Any) -> pb.SearchItemsResponse:
        trace = current_trace()
        seen["request_id"] = current_request_id()
        seen["trace_id"] = trace.trace_id if trace else ""
        return pb.SearchItemsResponse()

    async with both_ways(search) as ways:
        with capture_logs() as lines:
            asked = ways.direct.unary_unary(SEARCH)
            metadata = (("x-request-id", "asked-1"), ("traceparent", TRACEPARENT))
            await asked(pb.SearchItemsRequest().SerializeToString(), timeout=60, metadata=metadata)
            await asyncio.sleep(0)

    assert seen == {"request_id": "asked-1", "trace_id": TRACEPARENT.split("-")[1]}
    [line] = [each for each in lines if each["event"] == "call served"]
    assert (line["method"], line["code"], line["peer"]) == ("SearchItems", "OK", "in-process:0")
    assert current_request_id() == ""


async def test_a_caller_that_gives_up_cancels_the_work() -> None:
    began, ends = asyncio.Event(), asyncio.Queue[str]()

    async def search(request: pb.SearchItemsRequest, _: Any) -> pb.SearchItemsResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.put_nowait(request.index_id)
            raise
        return pb.SearchItemsResponse()

    async with both_ways(search) as ways:
        request = pb.SearchItemsRequest(index_id="one").SerializeToString()
        asking = asyncio.ensure_future(ways.direct.unary_unary(SEARCH)(request))
        await began.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await asyncio.wait_for(ends.get(), 30) == "one"

        began.clear()
        batch = pb.IngestItemsRequest(index_id="two").SerializeToString()
        stream = ways.direct.stream_stream(f"/{SEARCH_SERVICE}/IngestItems")([batch])
        await began.wait()
        stream.cancel()
        assert await asyncio.wait_for(ends.get(), 30) == "two"


async def test_callbacks_run_at_the_end_of_a_call() -> None:
    ended: list[str] = []

    async def search(request: pb.SearchItemsRequest, context: Any) -> pb.SearchItemsResponse:
        context.add_done_callback(lambda _: ended.append(request.index_id))
        if request.index_id == "none":
            raise IndexNotFound(index_id=request.index_id)
        assert not ended
        return pb.SearchItemsResponse()

    async with both_ways(search) as ways:
        for index_id in ("good", "none"):
            await _outcome(ways.direct, pb.SearchItemsRequest(index_id=index_id), 60)

    assert ended == ["good", "none"]


async def test_a_stream_ends_with_its_error_after_the_answers_before_it() -> None:
    """Whether or not they are read, the work goes on: what is not read holds no place."""
    handled: list[str] = []

    async def search(request: pb.SearchItemsRequest, _: Any) -> pb.SearchItemsResponse:
        handled.append(request.index_id)
        if request.index_id == "4":
            raise Overloaded(what="it is full", retry_delay_seconds=0.5)
        return pb.SearchItemsResponse()

    async with both_ways(search) as ways:
        batches = [pb.IngestItemsRequest(index_id=str(number)) for number in range(5)]
        stub = SearchServiceStub(ways.direct)
        stream: Any = stub.IngestItems(iter(batches))
        await until(lambda: len(handled) == 5)
        for _ in range(4):
            assert isinstance(await anext(stream), pb.IngestItemsResponse)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asyncio.wait_for(anext(stream), 30)
    error = error_from_rpc(caught.value, "both")
    assert isinstance(error, Overloaded)
    assert error.retry_delay_seconds == 0.5


async def test_a_stream_ends_at_its_deadline_though_nothing_is_read() -> None:
    async with both_ways(nothing_found) as ways:
        batches = [pb.IngestItemsRequest() for _ in range(5)]
        stream: Any = SearchServiceStub(ways.direct).IngestItems(iter(batches), timeout=0.2)
        await until(lambda: stream._task.done())
        assert isinstance(await anext(stream), pb.IngestItemsResponse)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(stream)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_health_is_asked_as_over_a_connection() -> None:
    async with both_ways(nothing_found) as ways:
        answers: Mapping[str, Any] = {
            name: await health_pb2_grpc.HealthStub(ways.direct).Check(
                health_pb2.HealthCheckRequest(service=name)
            )
            for name in (LIVENESS, SEARCH_SERVICE)
        }
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ways.direct.unary_unary("/nothing/Here")(b"")
    statuses = health_pb2.HealthCheckResponse
    assert answers[LIVENESS].status == statuses.SERVING
    assert answers[SEARCH_SERVICE].status == statuses.NOT_SERVING
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
