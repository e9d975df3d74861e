"""Continues the caller's trace, and makes the span of the call."""

from __future__ import annotations

from contextlib import AbstractContextManager

import grpc

from tandem.chassis.access.headers import current_headers
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.telemetry.tracing import TRACEPARENT_KEY, TRACESTATE_KEY, tracing


class TraceInterceptor(AroundInterceptor):
    """Reads `traceparent` and `tracestate`, or starts a trace; makes a span if it is sampled."""

    def around(
        self, method: str, context: grpc.aio.ServicerContext
    ) -> AbstractContextManager[object]:
        """Sets the trace context of the call's task."""
        headers = current_headers()
        offered = {
            key: value
            for key in (TRACEPARENT_KEY, TRACESTATE_KEY)
            if isinstance(value := headers.get(key), str)
        }
        return tracing().serve(method, offered, {"rpc.system": "grpc", "rpc.method": method})
