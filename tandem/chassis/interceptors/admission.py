"""Refuses work past what the service can do at once, rather than queue it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.errors import Overloaded


class AdmissionInterceptor(AroundInterceptor):
    """Serves at most `max_inflight_count` calls at once; a stream is one call while it is open.

    gRPC's own `maximum_concurrent_rpcs` has queued instead of refusing, and miscounted, in
    versions not long ago.
    """

    def __init__(self, service: str, max_inflight_count: int) -> None:
        self._service = service
        self._max_inflight_count = max_inflight_count
        self._inflight_count = 0

    @asynccontextmanager
    async def around(self, method: str, context: grpc.aio.ServicerContext) -> AsyncIterator[None]:
        """Holds one of the places; raises `Overloaded` where there is none."""
        if self._inflight_count >= self._max_inflight_count:
            raise Overloaded(what=f"{self._service} serves {self._inflight_count} calls already")
        self._inflight_count += 1
        try:
            yield
        finally:
            self._inflight_count -= 1
