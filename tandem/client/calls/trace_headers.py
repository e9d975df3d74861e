"""Puts each call into the caller's trace, or begins a trace for it (W3C trace context)."""

import random
import sys
from typing import Protocol

_UNDECIDED = "tandem=undecided"
"""An entry of `tracestate`: the first server's sampler decides, as for a call without a trace."""


class _TraceState(Protocol):
    """OpenTelemetry's `TraceState`."""

    def to_header(self) -> str:
        """Returns the header."""


class _SpanContext(Protocol):
    """OpenTelemetry's `SpanContext`."""

    trace_id: int
    span_id: int
    trace_flags: int
    trace_state: _TraceState
    is_valid: bool


def trace_headers() -> tuple[tuple[str, str], ...]:
    """Returns `traceparent` and `tracestate` for one call.

    The trace is that of OpenTelemetry's current span, if the caller uses OpenTelemetry and has one.
    Otherwise it begins here, with a random id, and the server decides whether it is sampled.
    """
    context = _current_span_context()
    if context is None:
        # random, not secrets: these ids only tell traces apart.
        trace_id, span_id = random.getrandbits(128) or 1, random.getrandbits(64) or 1
        return (
            ("traceparent", f"00-{trace_id:032x}-{span_id:016x}-00"),
            ("tracestate", _UNDECIDED),
        )
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return (("traceparent", parent), *((("tracestate", state),) if state else ()))


def _current_span_context() -> _SpanContext | None:
    """Returns the caller's span context; without an import, which this package does not need."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context: _SpanContext = trace.get_current_span().get_span_context()
    return context if context.is_valid else None
