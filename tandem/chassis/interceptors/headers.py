"""Reads a call's headers once, and refuses invalid ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.headers import bind_headers, fault_of_headers
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.interceptors.handlers import Continuation


class HeadersInterceptor(AroundInterceptor):
    """Sets the headers before any interceptor runs around the call."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """Returns a handler that refuses invalid headers."""
        bind_headers(handler_call_details.invocation_metadata)
        return await super().intercept_service(continuation, handler_call_details)

    @contextmanager
    def around(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        """Raises the fault of the headers."""
        if (fault := fault_of_headers()) is not None:
            raise fault
        yield
