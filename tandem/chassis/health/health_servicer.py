"""Implements grpc.health.v1 for many watchers.

grpcio-health-checking has an asyncio servicer too. In it, a watcher that leaves removes the other
watchers of its name, and a Watch call never ends, so a server with watchers waits its whole grace
period. Our channels watch every service that they call.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_SHOWN_LENGTH = 100

ServingStatus = int
"""A status of HealthCheckResponse."""


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Answers each name with its last status."""

    def __init__(self) -> None:
        self._statuses: dict[str, ServingStatus] = {}
        self._has_ended = False
        self._changed = asyncio.Event()

    def set_statuses(self, statuses: Mapping[str, ServingStatus]) -> None:
        """Sets the status of these names, and notifies their watchers."""
        self._statuses |= statuses
        self._wake()

    def set_all(self, status: ServingStatus) -> None:
        """Sets the status of every name."""
        self.set_statuses(dict.fromkeys(self._statuses, status))

    def end_watches(self) -> None:
        """Ends the open Watch calls, and later ones at once."""
        self._has_ended = True
        self._wake()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Answers with the status, or NOT_FOUND for an unknown name."""
        status = self._statuses.get(request.service)
        if status is None:
            # A trailer is smaller than a request: a long name, quoted whole, would fail as
            # RESOURCE_EXHAUSTED.
            shown = request.service[:_SHOWN_LENGTH]
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {shown!r}")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, _: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yields the status and each change of it; SERVICE_UNKNOWN for an unknown name."""
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        reported: ServingStatus | None = None
        while not self._has_ended:
            changed = self._changed  # Before reading the status, so that a later change wakes us.
            status = self._statuses.get(request.service, unknown)
            if status != reported:
                reported = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
