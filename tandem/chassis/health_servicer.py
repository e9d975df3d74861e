"""grpc.health.v1 with many watchers.

grpcio-health-checking has a servicer for asyncio too. In it, a watcher that leaves takes the others
of its name along, who then hear of nothing; and a watch never ends, so a server that has watchers
waits its whole grace period before it stops. Channels of ours watch whatever they call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_SHOWN_LENGTH = 100

ServingStatus = int
"""One of HealthCheckResponse's."""


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Says of each name what it was told last."""

    def __init__(self) -> None:
        self._statuses: dict[str, ServingStatus] = {}
        self._has_ended = False
        self._changed = asyncio.Event()

    def tell(self, statuses: Mapping[str, ServingStatus]) -> None:
        """Says so from now on of these names, and tells those who watch them."""
        self._statuses |= statuses
        self._wake()

    def tell_all(self, status: ServingStatus) -> None:
        """Says so of every name."""
        self.tell(dict.fromkeys(self._statuses, status))

    def end_watches(self) -> None:
        """Ends those under way and, at once, any that come."""
        self._has_ended = True
        self._wake()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Answers NOT_FOUND for a name that nothing was told of."""
        status = self._statuses.get(request.service)
        if status is None:
            # A trailer has less room than a request: quoted whole, a long name would come back as
            # RESOURCE_EXHAUSTED.
            shown = request.service[:_SHOWN_LENGTH]
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {shown!r}")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, _: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yields the status and each later one; SERVICE_UNKNOWN while nothing was told."""
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        told: ServingStatus | None = None
        while not self._has_ended:
            changed = self._changed  # before the look: what comes after it wakes us
            status = self._statuses.get(request.service, unknown)
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
