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
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
import trustme
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from prometheus_client.openmetrics.exposition import generate_latest

from tandem.chassis.calls.channels import call
from tandem.chassis.settings import SettingsError
from tandem.chassis.telemetry import log
from tandem.chassis.telemetry.metrics import REGISTRY, stage_histogram
from tandem.chassis.telemetry.tracing import (
    TraceContext,
    Tracing,
    annotate,
    check_trace_settings,
    current_trace,
    exemplar,
    extract_trace,
    load_tracing_or_exit,
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
    traced = Tracing(provider_of("test", exporter, ALWAYS_ON))
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
                    stub.SearchItems, request, service="second", timeout_seconds=60
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
    async with two_services() as channel:
        await search(channel, traceparent=PARENT)
    found = finished(spans)
    assert [span.name for span in found] == ["SearchItems", "encode", "SearchItems"]
    assert {f"{span.context.trace_id:032x}" for span in found} == {TRACE_ID}
    parents = [f"{span.parent.span_id:016x}" for span in found]
    assert parents == [PARENT.split("-")[2], *(f"{s.context.span_id:016x}" for s in found[:2])]
    assert found[0].attributes == {"rpc.system": "grpc", "rpc.method": "SearchItems"}


async def test_tracestate_is_passed_on(spans: InMemorySpanExporter) -> None:
    for flags in ("00", "01"):
        async with two_services() as channel:
            await search(channel, traceparent=PARENT[:-2] + flags, tracestate="dd=s:1,other=x")
    found = finished(spans)
    assert len(found) == 3
    assert {span.context.trace_state.to_header() for span in found} == {"dd=s:1,other=x"}


async def test_a_trace_that_starts_here_has_a_root(spans: InMemorySpanExporter) -> None:
    async with two_services() as channel:
        await search(channel)
        await search(channel, traceparent="00-nonsense")
    first, _, _, second, *_ = finished(spans)
    assert first.parent is second.parent is None
    assert first.context.trace_id != second.context.trace_id


UNDECIDED = {"traceparent": PARENT[:-2] + "00", "tracestate": "tandem=undecided"}


async def test_a_trace_that_an_sdk_began_has_a_root_under_its_id(
    spans: InMemorySpanExporter,
) -> None:
    async with two_services() as channel:
        await search(channel, **UNDECIDED)
    found = finished(spans)
    assert {f"{span.context.trace_id:032x}" for span in found} == {TRACE_ID}
    assert [span.name for span in found] == ["SearchItems", "encode", "SearchItems"]
    assert found[0].parent is None
    assert {span.context.trace_state.to_header() for span in found} == {""}


@pytest.mark.parametrize("sampler", [None, ALWAYS_OFF], ids=["no exporter", "not sampled"])
async def test_a_trace_that_an_sdk_began_keeps_its_id_unsampled(sampler: Sampler | None) -> None:
    """For the logs of all services; the decision is not asked for again."""
    exporter = InMemorySpanExporter()
    traced = Tracing(provider_of("test", exporter, sampler) if sampler else None)
    with traced.serve("SearchItems", UNDECIDED, {}) as context:
        headers = context.headers
    traced.close()
    assert headers["traceparent"].startswith(f"00-{TRACE_ID}-")
    assert headers["traceparent"].endswith("-00")
    assert "tracestate" not in headers
    assert exporter.get_finished_spans() == ()


async def test_a_stage_can_be_annotated(spans: InMemorySpanExporter) -> None:
    annotate({"lost": 1})
    with tracing().serve("SearchItems", {}, {}), tracing().stage("retrieve"):
        annotate({"tandem.retrieve_k": 20})
    assert [dict(span.attributes) for span in finished(spans)] == [{}, {"tandem.retrieve_k": 20}]


async def test_the_callers_sampling_decision_holds(spans: InMemorySpanExporter) -> None:
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
    async with two_services(is_refused=True) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await search(channel, traceparent=PARENT)
    found = finished(spans)
    assert [span.status.is_ok for span in found] == [False, False, False]
    assert "private" not in "".join(span.to_json() for span in found)
    assert "IndexNotFound" in found[1].to_json()


async def test_histograms_point_to_sampled_traces(spans: InMemorySpanExporter) -> None:
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
        "00",
        PARENT.upper(),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
    ],
)
def test_an_invalid_traceparent_is_ignored(text: str | None) -> None:
    """By the W3C's recommendation; a later version may have more behind."""
    headers = {} if text is None else {"traceparent": text}
    assert extract_trace(headers) is None
    assert extract_trace({"traceparent": PARENT}) == TraceContext(
        TRACE_ID, "b7ad6b7169203331", True
    )


@pytest.mark.parametrize("flags", ["01", "ff"])
def test_a_plain_traceparent_is_read_as_opentelemetry_reads_it(flags: str) -> None:
    """The blank in front, which the recommendation allows, is for OpenTelemetry to read."""
    plain = f"00-{TRACE_ID}-b7ad6b7169203331-{flags}"

    read = extract_trace({"traceparent": plain})

    assert read == extract_trace({"traceparent": f" {plain}"})
    assert read == TraceContext(TRACE_ID, "b7ad6b7169203331", flags in ("01", "03", "ff"))


async def test_outside_of_a_request_there_is_no_trace() -> None:
    with tracing().stage("canary"):
        assert current_trace() is None


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.headers: dict[str, str | bytes] = {}
        self.resource: dict[str, str] = {}

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Notes the headers, the resource and the spans' names."""
        self.headers = dict(context.invocation_metadata())
        for resource in request.resource_spans:
            for each in resource.resource.attributes:
                self.resource[each.key] = each.value.string_value
            for scope in resource.scope_spans:
                self.names += [span.name for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_the_variables_of_opentelemetry_configure_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = grpc.server(futures.ThreadPoolExecutor(1))
    collector = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([pair]))
    server.start()
    for name, value in {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://localhost:{port}",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.pem"),
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_TRACES_SAMPLER": "always_on",
    }.items():
        monkeypatch.setenv(name, value)
    traced = load_tracing_or_exit("encoder")
    try:
        with traced.serve("SearchItems", {}, {}):
            pass
        await asyncio.to_thread(traced.close)
    finally:
        server.stop(None)
    assert collector.names == ["SearchItems"]
    assert collector.headers["api-key"] == "secret"
    assert collector.resource["service.name"] == "tandem-encoder"
    assert collector.resource["deployment.environment.name"] == "test"


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "'zipkin'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "4317"),
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "parentbased_traceidratio"),
        ({"OTEL_TRACES_SAMPLER_ARG": "2"}, "0 to 1"),
    ],
)
def test_a_variable_that_is_invalid_is_named(variables: dict[str, str], why: str) -> None:
    """Before anything starts. OpenTelemetry itself would warn and trace every request."""
    with pytest.raises(SettingsError, match=why):
        check_trace_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317"} | variables)


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
    ],
)
def test_what_opentelemetry_refuses_ends_the_start_by_name(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", **variables}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit) as ended:
        load_tracing_or_exit("test")

    assert ended.value.code == 2
    assert "the OTEL_" in capsys.readouterr().err


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_exported_unless_an_endpoint_is_set(variables: dict[str, str]) -> None:
    assert not check_trace_settings(variables)


async def test_an_unreachable_collector_delays_no_request() -> None:
    exporter = OTLPSpanExporter(endpoint="localhost:1", insecure=True, timeout=2)
    traced = Tracing(provider_of("test", exporter, ALWAYS_ON))
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
