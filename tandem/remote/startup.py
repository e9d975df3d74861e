"""Checks at start that enough downstream services are serving."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.calls.channels import call
from tandem.chassis.telemetry.log import get_logger
from tandem.errors import ServiceUnavailable, TandemError

log = get_logger()

_TIMEOUT_SECONDS = 2.0


Check = Callable[[], Awaitable[TandemError | None]]
"""Returns why a service is not serving; None if it is."""


class Dependencies:
    """Waits for all downstream services at first, then only for those that searches need.

    Searches need the encoder and one index_svc; a rerank_svc is never needed. Answers without the
    other shards' items are flagged, or refused by name if the coverage is too low, so a restarted
    orchestrator is as useful as one that ran before. Once it serves, it keeps serving whatever
    fails downstream: degraded answers are flagged, and NOT_SERVING would give no answers at all.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        *,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes checks by the services' names: "encoder", "index-0", "rerank-0" and on.

        Requires all services for `wait_seconds` from the first check on.
        """
        self._checks = checks
        self._index_count = sum(name.startswith("index-") for name in checks)
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._first_time: float | None = None

    async def check(self) -> None:
        """Raises ServiceUnavailable, naming a service, unless enough of them are serving."""
        now = self._clock()
        if self._first_time is None:
            self._first_time = now
        failures = await self._failures()
        if not failures:
            return
        is_waiting = now - self._first_time < self._wait_seconds
        if is_waiting or not self._are_enough_without(failures):
            raise next(iter(failures.values()))
        log.warning(
            "serving without", missing={name: error.message for name, error in failures.items()}
        )

    def _are_enough_without(self, failures: Mapping[str, TandemError]) -> bool:
        missing_count = sum(name.startswith("index-") for name in failures)
        return "encoder" not in failures and missing_count < self._index_count

    async def _failures(self) -> Mapping[str, TandemError]:
        """Returns why services are not serving, by name; the needed ones first."""
        found = await asyncio.gather(*(check() for check in self._checks.values()))
        return {name: error for name, error in zip(self._checks, found, strict=True) if error}


async def check_serving(name: str, channel: grpc.aio.Channel) -> TandemError | None:
    """Returns why the service of a channel is not serving; None if it is."""
    try:
        response: health_pb2.HealthCheckResponse = await call(
            health_pb2_grpc.HealthStub(channel).Check,
            health_pb2.HealthCheckRequest(),
            service=name,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
    except TandemError as error:
        return error
    if response.status != health_pb2.HealthCheckResponse.SERVING:
        return ServiceUnavailable(service=name, why="it is not serving yet")
    return None
