"""One trace for one request: W3C trace context in, through every service, and on to Triton.

Most requests are not sampled. They carry their trace's id into logs and onward, and cost no more
than that; spans are OpenTelemetry's, made for the sampled ones alone.
"""

from __future__ import annotations

import contextvars
import os
import random
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.chassis.settings import SettingsError, load, setting

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

TRACEPARENT_KEY = "traceparent"

# A collector that does not answer holds its thread, never a request.
_EXPORT_TIMEOUT_SECONDS = 2
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceSettings:
    """Where spans go, and of how many requests."""

    endpoint: str = setting(
        "host:port of an OpenTelemetry collector that takes OTLP over gRPC; empty sends none",
        default="",
    )
    sample_share: float = setting(
        "share of requests, 0 to 1, that are traced where their caller has not decided",
        default=0.01,
    )


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where in which trace the current task is; ids in hexadecimal, as in `traceparent`."""

    trace_id: str
    span_id: str
    is_sampled: bool

    @property
    def traceparent(self) -> str:
        """As it is sent onward."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.is_sampled else 0:02x}"


_current: contextvars.ContextVar[TraceContext | None] = contextvars.ContextVar(
    "tandem_trace", default=None
)


class Tracing:
    """A process's way of tracing."""

    def __init__(self, sample_share: float = 0.0, provider: TracerProvider | None = None) -> None:
        """Without a provider, contexts are carried and no spans are made."""
        self._sample_share = sample_share if provider is not None else 0.0
        self._provider = provider
        self._tracer = provider.get_tracer("tandem") if provider is not None else None

    def serve(self, name: str, offered: str | None) -> AbstractContextManager[TraceContext]:
        """Continues the caller's trace, or begins one, for what is served in its body."""
        return self._span(name, parse_traceparent(offered) or self._begun(), is_server=True)

    def stage(self, name: str) -> AbstractContextManager[object]:
        """Makes a span of its body within what is being served."""
        parent = _current.get()
        if self._tracer is None or parent is None or not parent.is_sampled:
            return nullcontext()
        return self._span(name, parent)

    def close(self) -> None:
        """Sends what is left, for no longer than an export may take."""
        if self._provider is not None:
            self._provider.force_flush(_EXPORT_TIMEOUT_SECONDS * 1_000)
            self._provider.shutdown()

    def _begun(self) -> TraceContext:
        # random, not secrets: it tells traces apart, and is asked for with every request.
        return TraceContext(
            f"{random.getrandbits(128) or 1:032x}",
            f"{random.getrandbits(64) or 1:016x}",
            random.random() < self._sample_share,
        )

    @contextmanager
    def _span(
        self, name: str, parent: TraceContext, *, is_server: bool = False
    ) -> Iterator[TraceContext]:
        if self._tracer is None or not parent.is_sampled:
            token = _current.set(parent)
            try:
                yield parent
            finally:
                _reset(token)
            return
        from opentelemetry import trace

        span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent))),
            kind=trace.SpanKind.SERVER if is_server else trace.SpanKind.INTERNAL,
        )
        own = replace(parent, span_id=f"{span.get_span_context().span_id:016x}")
        token = _current.set(own)
        try:
            yield own
        except BaseException as error:
            # By its kind alone: a message may tell of content.
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            _reset(token)
            span.end()


_tracing = Tracing()


def tracing() -> Tracing:
    """Returns the process's; one that carries contexts and makes no spans until `use` is called."""
    return _tracing


def use(traced: Tracing) -> None:
    """Makes it the process's."""
    global _tracing
    _tracing = traced


def current_trace() -> TraceContext | None:
    """Returns where the current task is; None outside of any request."""
    return _current.get()


def trace_headers() -> dict[str, str] | None:
    """Returns what tells a server that is not ours of the current trace; None if not sampled."""
    context = _current.get()
    if context is None or not context.is_sampled:
        return None
    return {TRACEPARENT_KEY: context.traceparent}


def exemplar() -> dict[str, str] | None:
    """Returns the label by which a histogram points to the current trace; None if not sampled."""
    context = _current.get()
    return {"trace_id": context.trace_id} if context is not None and context.is_sampled else None


def parse_traceparent(text: str | None) -> TraceContext | None:
    """Returns the caller's context; None where it is none by the W3C's recommendation."""
    found = _TRACEPARENT.fullmatch(text or "")
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    is_odd = version == "ff" or (version == "00" and more) or not int(trace_id, 16)
    if is_odd or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def load_tracing_or_exit(service: str) -> Tracing:
    """Returns the process's tracing by TRACE_… variables; for `__main__` alone.

    Where they are at fault, says so on stderr and exits 2. To be called when the event loop runs:
    its exporter has a thread.
    """
    try:
        settings = load(TraceSettings, "TRACE_", os.environ)
        if not 0 <= settings.sample_share <= 1:
            raise SettingsError(f"TRACE_SAMPLE_SHARE is {settings.sample_share}; it is 0 to 1")
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if not settings.endpoint:
        return Tracing()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(
        endpoint=settings.endpoint, insecure=True, timeout=_EXPORT_TIMEOUT_SECONDS
    )
    return Tracing(settings.sample_share, provider_of(service, exporter))


def provider_of(service: str, exporter: SpanExporter) -> TracerProvider:
    """Returns a provider that sends in the background, all that it is given: we sample before."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    provider = TracerProvider(ALWAYS_ON, Resource({SERVICE_NAME: f"tandem-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _span_context(context: TraceContext) -> SpanContext:
    from opentelemetry import trace

    return trace.SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(_SAMPLED),
    )


def _reset(token: contextvars.Token[TraceContext | None]) -> None:
    try:
        _current.reset(token)
    except ValueError:
        # A stream whose caller has gone is closed by another task than the one that served it.
        _current.set(None)
