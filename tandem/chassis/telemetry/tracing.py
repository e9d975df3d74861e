"""Traces a request through every service and on to Triton, by W3C trace context.

OpenTelemetry's own variables (OTEL_…) configure it. Most requests are not sampled: they carry their
trace context into logs and downstream calls, and no span is made for them.
"""

from __future__ import annotations

import contextvars
import os
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tandem.chassis.settings import SettingsError, exiting_on_faults

# The SDK is imported where spans are made: most processes make none, and start without it.
if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import Sampler

TRACEPARENT_KEY = "traceparent"
TRACESTATE_KEY = "tracestate"
DEFAULT_SAMPLE_SHARE = 0.01

# OpenTelemetry's default is 10 s, which a shutdown would have to wait.
_EXPORT_TIMEOUT_SECONDS = 2
# What an SDK sends with a trace that it started (tandem/client/calls/trace_headers.py).
_UNDECIDED = "tandem=undecided"
_PROPAGATOR = TraceContextTextMapPropagator()
# As our own services send it. OpenTelemetry reads the same of it in five times the time, and every
# call has one.
_PLAIN_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Identifies the current span; ids are hexadecimal, as in `traceparent`."""

    trace_id: str
    span_id: str
    is_sampled: bool
    tracestate: str = ""
    """The vendors' entries, forwarded unchanged."""
    span: trace.Span | None = field(default=None, compare=False, repr=False)
    """The recording span of this process, if there is one."""

    @property
    def traceparent(self) -> str:
        """Returns the header for downstream calls."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"

    @property
    def is_undecided(self) -> bool:
        """Returns whether the caller chose the trace's id, and leaves sampling to this service."""
        return _UNDECIDED in self.tracestate.split(",")

    @property
    def headers(self) -> dict[str, str]:
        """Returns all headers for downstream calls."""
        headers = {TRACEPARENT_KEY: self.traceparent}
        return headers | {TRACESTATE_KEY: self.tracestate} if self.tracestate else headers


_current: contextvars.ContextVar[TraceContext | None] = contextvars.ContextVar(
    "tandem_trace", default=None
)
_chosen: contextvars.ContextVar[int | None] = contextvars.ContextVar(
    "tandem_chosen_trace", default=None
)


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Without a provider, trace contexts are carried and no span is made."""
        self._provider = provider
        self._tracer = provider.get_tracer("tandem") if provider is not None else None

    def serve(
        self, name: str, headers: Mapping[str, str], attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[TraceContext]:
        """Continues the caller's trace, or starts one, for the call in the body."""
        offered = extract_trace(headers)
        if offered is not None and offered.is_undecided:
            return self._begun(name, offered.trace_id, attributes)
        if self._tracer is None or (offered is not None and not offered.is_sampled):
            return _carried(offered or _random_context())
        return self._span(name, offered, trace.SpanKind.SERVER, attributes)

    def stage(
        self, name: str, attributes: Mapping[str, str | int] | None = None
    ) -> AbstractContextManager[object]:
        """Makes a child span for the body if the current call is sampled."""
        parent = _current.get()
        if self._tracer is None or parent is None or not parent.is_sampled:
            return nullcontext()
        return self._span(name, parent, trace.SpanKind.INTERNAL, attributes)

    def close(self) -> None:
        """Sends the remaining spans, within the timeout of one export."""
        if self._provider is not None:
            self._provider.force_flush(_EXPORT_TIMEOUT_SECONDS * 1_000)
            self._provider.shutdown()

    def _begun(
        self, name: str, trace_id: str, attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[TraceContext]:
        """Starts a trace under the id that a caller chose, which exports no span of its own."""
        if self._tracer is None:
            return _carried(replace(_random_context(), trace_id=trace_id))
        return self._span(name, None, trace.SpanKind.SERVER, attributes, trace_id=trace_id)

    @contextmanager
    def _span(
        self,
        name: str,
        parent: TraceContext | None,
        kind: trace.SpanKind,
        attributes: Mapping[str, str | int] | None,
        *,
        trace_id: str = "",
    ) -> Iterator[TraceContext]:
        if self._tracer is None:
            raise AssertionError("without a provider there is no span")
        context = Context() if parent is None else _otel_context(parent)
        choice = _chosen.set(int(trace_id, 16) if trace_id else None)
        span = self._tracer.start_span(name, context, kind, attributes)
        _chosen.reset(choice)
        own = _context_of(span)
        token = _current.set(own)
        try:
            yield own
        except BaseException as error:
            # The class name only: a message may contain content.
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            _reset(token)
            span.end()


_tracing = Tracing()


def tracing() -> Tracing:
    """Returns the process's tracing, which makes no spans until `use` is called."""
    return _tracing


def use(traced: Tracing) -> None:
    """Sets the process's tracing."""
    global _tracing
    _tracing = traced


def current_trace() -> TraceContext | None:
    """Returns the current trace context, or None outside of a call."""
    return _current.get()


def annotate(attributes: Mapping[str, str | int]) -> None:
    """Sets attributes on the current span, if it is sampled. Never pass content."""
    context = _current.get()
    if context is not None and context.span is not None:
        context.span.set_attributes(attributes)


def trace_headers() -> dict[str, str] | None:
    """Returns the headers for a server that is not ours, or None if not sampled."""
    context = _current.get()
    return context.headers if context is not None and context.is_sampled else None


def exemplar() -> dict[str, str] | None:
    """Returns the label that links a histogram to the current trace, or None if not sampled."""
    context = _current.get()
    return {"trace_id": context.trace_id} if context is not None and context.is_sampled else None


def extract_trace(headers: Mapping[str, str]) -> TraceContext | None:
    """Returns the caller's trace context, or None if the headers have no valid one."""
    offered = headers.get(TRACEPARENT_KEY)
    if offered is None:
        return None
    plain = _PLAIN_TRACEPARENT.fullmatch(offered)
    if plain is not None and TRACESTATE_KEY not in headers:
        trace_id, span_id, flags = plain.groups()
        return TraceContext(trace_id, span_id, bool(int(flags, 16) & trace.TraceFlags.SAMPLED))
    span = trace.get_current_span(_PROPAGATOR.extract(headers, Context()))
    return _context_of(span) if span.get_span_context().is_valid else None


def load_tracing_or_exit(service: str) -> Tracing:
    """Returns the process's tracing by the OTEL_… variables; for `__main__` only.

    Exits 2 with a message where a variable is invalid. Call it while the event loop runs, because
    the exporter starts a thread.
    """
    with exiting_on_faults():
        if not check_trace_settings(os.environ):
            return Tracing()
        exporter, sampler = _exporter(os.environ), _sampler(os.environ)
        try:
            return Tracing(provider_of(service, exporter, sampler))
        except ValueError as error:
            raise SettingsError(f"the OTEL_… variables are not valid: {error}") from error


def provider_of(service: str, exporter: SpanExporter, sampler: Sampler) -> TracerProvider:
    """Returns a provider that exports in the background; OTEL_… sets its resource and batches."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class ChosenTraceIds(RandomIdGenerator):
        """Gives a span without a parent the trace id that its caller chose, or a random one."""

        def generate_trace_id(self) -> int:
            return _chosen.get() or super().generate_trace_id()

    is_named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if is_named else {SERVICE_NAME: f"tandem-{service}"})
    provider = TracerProvider(sampler, resource, id_generator=ChosenTraceIds())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def check_trace_settings(environ: Mapping[str, str]) -> bool:
    """Returns whether spans are exported; raises SettingsError for an invalid variable."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporter = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() or "otlp"
    if is_off or exporter == "none":
        return False
    if exporter != "otlp":
        raise SettingsError(f"OTEL_TRACES_EXPORTER is {exporter!r}; Tandem has 'otlp' and 'none'")
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if not any(environ.get(name) for name in names):
        return False
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (protocol := environ.get(name) or "grpc") != "grpc":
            raise SettingsError(
                f"{name} is {protocol!r}; Tandem exports over 'grpc' only: set it, and the "
                "collector's gRPC port, by default 4317"
            )
    _sampler(environ)
    return True


def _exporter(environ: Mapping[str, str]) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    timeouts = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    is_set = any(name in environ for name in timeouts)
    try:
        return OTLPSpanExporter(timeout=None if is_set else _EXPORT_TIMEOUT_SECONDS)
    except Exception as error:
        raise SettingsError(f"the OTEL_EXPORTER_OTLP_… variables are not valid: {error}") from error


def _sampler(environ: Mapping[str, str]) -> Sampler:
    from opentelemetry.sdk.trace import sampling

    name = environ.get("OTEL_TRACES_SAMPLER") or "parentbased_traceidratio"
    try:
        share = float(environ.get("OTEL_TRACES_SAMPLER_ARG") or DEFAULT_SAMPLE_SHARE)
        by_share = sampling.TraceIdRatioBased(share)
    except ValueError as error:
        raise SettingsError(
            f"OTEL_TRACES_SAMPLER_ARG is {environ['OTEL_TRACES_SAMPLER_ARG']!r}; it is 0 to 1"
        ) from error
    samplers: dict[str, Sampler] = {
        "always_on": sampling.ALWAYS_ON,
        "always_off": sampling.ALWAYS_OFF,
        "traceidratio": by_share,
        "parentbased_always_on": sampling.ParentBased(sampling.ALWAYS_ON),
        "parentbased_always_off": sampling.ParentBased(sampling.ALWAYS_OFF),
        "parentbased_traceidratio": sampling.ParentBased(by_share),
    }
    if name not in samplers:
        raise SettingsError(f"OTEL_TRACES_SAMPLER is {name!r}; it is one of {', '.join(samplers)}")
    return samplers[name]


@contextmanager
def _carried(context: TraceContext) -> Iterator[TraceContext]:
    token = _current.set(context)
    try:
        yield context
    finally:
        _reset(token)


def _random_context() -> TraceContext:
    # random, not secrets: these ids only tell traces apart, and every call draws one.
    return TraceContext(
        f"{random.getrandbits(128) or 1:032x}", f"{random.getrandbits(64) or 1:016x}", False
    )


def _context_of(span: trace.Span) -> TraceContext:
    context = span.get_span_context()
    return TraceContext(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        context.trace_flags.sampled,
        context.trace_state.to_header(),
        span if span.is_recording() else None,
    )


def _otel_context(context: TraceContext) -> Context:
    if context.span is not None:
        return trace.set_span_in_context(context.span, Context())
    remote = trace.SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(int(context.is_sampled)),
        trace_state=trace.TraceState.from_header([context.tracestate]),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(remote), Context())


def _reset(token: contextvars.Token[TraceContext | None]) -> None:
    try:
        _current.reset(token)
    except ValueError:
        # A stream whose caller has gone is closed in another task than the one that served it.
        _current.set(None)
