"""Refuses calls with invalid headers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.access.headers import fault_of_headers
from tandem.chassis.interceptors.around import AroundInterceptor


class HeadersInterceptor(AroundInterceptor):
    """Refuses invalid headers; the chain has set them before any interceptor runs."""

    @contextmanager
    def around(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        """Raises the fault of the headers."""
        if (fault := fault_of_headers()) is not None:
            raise fault
        yield
