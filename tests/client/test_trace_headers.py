"""The trace of a call: the caller's, or a new one."""

import re
import subprocess
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tandem.chassis.telemetry.tracing import extract_trace
from tandem.client.calls.trace_headers import trace_headers


def test_a_call_without_a_trace_begins_one() -> None:
    """Each has its own, and leaves it to the server whether it is sampled."""
    first, second = (dict(trace_headers()) for _ in range(2))

    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", first["traceparent"])
    assert first["traceparent"] != second["traceparent"]
    context = extract_trace(first)
    assert context is not None
    assert context.is_undecided


def test_a_call_within_a_span_is_of_its_trace() -> None:
    """OpenTelemetry's, with its decision; the vendors' state goes along."""
    state = trace.TraceState([("dd", "s:1")])
    parent = trace.SpanContext(0xABC, 0xDEF, True, trace.TraceFlags(1), state)
    tracer = TracerProvider().get_tracer("test")
    context = trace.set_span_in_context(trace.NonRecordingSpan(parent))

    with tracer.start_as_current_span("work", context) as span:
        headers = dict(trace_headers())

    own = span.get_span_context().span_id
    assert headers == {"traceparent": f"00-{0xABC:032x}-{own:016x}-01", "tracestate": "dd=s:1"}


def test_opentelemetry_is_not_needed() -> None:
    code = """
import sys
from tandem.client.calls.trace_headers import trace_headers
print(len(trace_headers()), any(name.startswith("opentelemetry") for name in sys.modules))
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert printed.split() == ["2", "False"]
