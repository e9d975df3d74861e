"""One trace for one request, over two services on real connections."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from concurrent import futures
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import structlog
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.exposition import generate_latest

from tandem.chassis import log
from tandem.chassis.channels import call
from tandem.chassis.metrics import REGISTRY, stage_histogram
from tandem.chassis.tracing import (
    Tracing,
    current_trace,
    exemplar,
    parse_traceparent,
    provider_of,
    tracing,
    use,
)
from tandem.errors import IndexNotFound
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.scripted_service import nothing_found, scripted_service

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Where sampled spans go; every request is sampled."""
    exporter = InMemorySpanExporter()
    traced = Tracing(1.0, provider_of("test", exporter))
    use(traced)
    yield exporter
    use(Tracing())
    traced.close()


@asynccontextmanager
async def two_services(*, is_refused: bool = False) -> AsyncIterator[grpc.aio.Channel]:
    """A service whose searches ask another one, within a stage."""

    async def refuse(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        raise IndexNotFound(index_id="private words")

    async with scripted_service(refuse if is_refused else nothing_found, name="second") as second:
        stub = SearchServiceStub(second)

        async def ask(
            request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
        ) -> pb.SearchItemsResponse:
            with tracing().stage("encode"):
                response: pb.SearchItemsResponse = await call(
                    stub.SearchItems, request, service="second", timeout_seconds=5.0
                )
                stage_histogram("traced").labels("encode").observe(0.003, exemplar())
                return response

        async with scripted_service(ask, name="first") as first:
            yield first


async def search(channel: grpc.aio.Channel, **metadata: str) -> None:
    """Calls the first service."""
    await SearchServiceStub(channel).SearchItems(
        pb.SearchItemsRequest(), metadata=tuple(metadata.items())
    )


def finished(exporter: InMemorySpanExporter) -> list[Any]:
    """Returns the spans, in the order in which they began."""
    tracing().close()
    return sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


async def test_a_query_is_one_trace(spans: InMemorySpanExporter) -> None:
    """Client's, first service's, its stage's, second service's: each the next one's parent."""
    async with two_services() as channel:
        await search(channel, traceparent=PARENT)
    found = finished(spans)
    assert [span.name for span in found] == ["SearchItems", "encode", "SearchItems"]
    assert {f"{span.context.trace_id:032x}" for span in found} == {TRACE_ID}
    parents = [f"{span.parent.span_id:016x}" for span in found]
    assert parents == [PARENT.split("-")[2], *(f"{s.context.span_id:016x}" for s in found[:2])]


async def test_a_trace_is_begun_where_the_caller_has_none(spans: InMemorySpanExporter) -> None:
    """Two searches are two traces."""
    async with two_services() as channel:
        await search(channel)
        await search(channel, traceparent="00-nonsense")
    assert len({span.context.trace_id for span in finished(spans)}) == 2


async def test_a_caller_that_does_not_sample_decides_for_all(spans: InMemorySpanExporter) -> None:
    """Its trace's id is carried all the same, and is in both services' logs."""
    stream = io.StringIO()
    log.configure("test", stream)
    try:
        async with two_services() as channel:
            await search(channel, traceparent=PARENT.removesuffix("1") + "0")
    finally:
        structlog.reset_defaults()
    assert finished(spans) == []
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["trace_id"] for line in lines if line["event"] == "call served"] == [TRACE_ID] * 2


async def test_a_failed_span_tells_no_content(spans: InMemorySpanExporter) -> None:
    """What failed is there by its kind."""
    async with two_services(is_refused=True) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await search(channel, traceparent=PARENT)
    found = finished(spans)
    assert [span.status.is_ok for span in found] == [False, False, False]
    assert "private" not in "".join(span.to_json() for span in found)
    assert "IndexNotFound" in found[1].to_json()


async def test_histograms_point_to_sampled_traces(spans: InMemorySpanExporter) -> None:
    """Of stages and of calls, where scraped as OpenMetrics; not to traces that nobody kept."""
    async with two_services() as channel:
        await search(channel, traceparent=PARENT)
        other = "1" * 32
        await search(channel, traceparent=f"00-{other}-b7ad6b7169203331-00")
    text = generate_latest(REGISTRY).decode()
    for name in ("tandem_traced_stage_duration_seconds", "tandem_rpc_duration_seconds"):
        pointing = re.findall(rf'{name}_bucket{{.*# {{trace_id="(\w+)"}}', text)
        assert TRACE_ID in pointing
        assert other not in pointing


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        PARENT + "-more",
        "ff" + PARENT[2:],
        PARENT.upper(),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
    ],
)
def test_what_is_no_traceparent(text: str | None) -> None:
    """By the W3C's recommendation; a later version may have more behind."""
    assert parse_traceparent(text) is None
    later = parse_traceparent("01" + PARENT[2:] + "-more")
    assert later is not None
    assert later.traceparent == PARENT


async def test_outside_of_a_request_there_is_no_trace() -> None:
    """A canary, for example, is nobody's."""
    with tracing().stage("canary"):
        assert current_trace() is None


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Notes the spans' names."""
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.names += [span.name for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_spans_reach_a_collector() -> None:
    """Over OTLP, on a real connection."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    collector = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    exporter = OTLPSpanExporter(endpoint=f"localhost:{port}", insecure=True, timeout=2)
    traced = Tracing(1.0, provider_of("test", exporter))
    use(traced)
    try:
        async with two_services() as channel:
            await search(channel, traceparent=PARENT)
        await asyncio.to_thread(traced.close)
    finally:
        use(Tracing())
        server.stop(None)
    assert sorted(collector.names) == ["SearchItems", "SearchItems", "encode"]


async def test_a_collector_that_is_down_holds_no_request() -> None:
    """It has a thread of its own to wait in."""
    exporter = OTLPSpanExporter(endpoint="localhost:1", insecure=True, timeout=2)
    traced = Tracing(1.0, provider_of("test", exporter))
    use(traced)
    try:
        async with two_services() as channel:
            await search(channel)
            seconds = []
            for _ in range(200):
                start_time = time.perf_counter()
                await search(channel)
                seconds.append(time.perf_counter() - start_time)
    finally:
        use(Tracing())
        await asyncio.to_thread(traced.close)
    assert sorted(seconds)[100] < 0.5  # of the seconds that an export takes to give up
