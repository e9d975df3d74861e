"""Continues the caller's trace."""

from __future__ import annotations

from contextlib import AbstractContextManager

import grpc

from tandem.chassis.headers import current_headers
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.tracing import TRACEPARENT_KEY, tracing


class TraceInterceptor(AroundInterceptor):
    """Takes `traceparent` from the caller or begins a trace; a span of the call where sampled."""

    def around(
        self, method: str, context: grpc.aio.ServicerContext
    ) -> AbstractContextManager[object]:
        """Binds the trace for the call's task."""
        offered = current_headers().get(TRACEPARENT_KEY)
        return tracing().serve(method, offered if isinstance(offered, str) else None)
