"""Reports by grpc.health.v1 whether a service is ready, which a canary checks."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.health.health_servicer import HealthServicer
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.metrics import SERVING
from tandem.contract.deadline import Deadline
from tandem.errors import TandemError

log = get_logger()

Probe = Callable[[], Awaitable[None]]

LIVENESS = "liveness"
"""The health name that reports whether this process answers at all.

Not "", which follows the downstream services: restarting a process whenever one of them is down
would only take it down as well.
"""

WARM_RETRY_SECONDS = 0.5
CANARY_PERIOD_SECONDS = 1.0
# The least pause between a slow canary and the next one.
CANARY_PAUSE_SECONDS = 0.1
# A canary without an answer by then has failed, whatever it waits for.
CANARY_TIMEOUT_SECONDS = 5.0


class Health:
    """The health of one service: alive, and NOT_SERVING until `watch` reports otherwise."""

    def __init__(
        self,
        service: str,
        service_names: Sequence[str],
        note: Callable[[bool], object] | None = None,
    ) -> None:
        """Calls `note` with each status, by default to set `tandem_serving` of the service."""
        self._service = service
        self._note = note or SERVING.labels(service).set
        # "" is the whole process, which Kubernetes checks by default.
        self._names = ("", *service_names)
        self._servicer = HealthServicer()
        self._serving = False
        self.has_left = False

    def begin(self) -> None:
        """Sets all names except LIVENESS to NOT_SERVING."""
        self._tell(serving=False)
        self._servicer.set_statuses({LIVENESS: health_pb2.HealthCheckResponse.SERVING})

    def register(self, server: grpc.aio.Server) -> None:
        """Begins, and adds the health service to `server`; call before it starts."""
        self.begin()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def watch(self, warm: Probe, ready: Probe | None) -> None:
        """Retries `warm` while it raises `TandemError`, then reports `ready` forever.

        Any other exception of `warm` ends the watch: a start that cannot succeed must not look
        like a slow one.
        """
        await self._warm_up(warm)
        self._tell(serving=True)
        log.info("serving", service=self._service)
        took_seconds = 0.0
        while ready is not None:
            # After a canary that used its whole time: what hangs is not polled more often.
            spent_seconds = took_seconds if self._serving else 0.0
            await asyncio.sleep(max(CANARY_PAUSE_SECONDS, CANARY_PERIOD_SECONDS - spent_seconds))
            start_time = time.monotonic()
            await self._try(ready)
            took_seconds = time.monotonic() - start_time

    def is_serving(self) -> bool:
        """Returns the last reported status."""
        return self._serving

    def leave(self) -> None:
        """Sets every name, LIVENESS too, to NOT_SERVING for good."""
        self._serving = False
        self.has_left = True
        self._servicer.set_all(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._note(False)

    def end_watches(self) -> None:
        """Ends the Watch calls before the server stops."""
        self._servicer.end_watches()

    async def _warm_up(self, warm: Probe) -> None:
        while True:
            try:
                return await warm()
            except TandemError as error:
                log.warning(
                    "not warm yet", service=self._service, reason=error.reason, cause=error.message
                )
            await asyncio.sleep(WARM_RETRY_SECONDS)

    async def _try(self, ready: Probe) -> None:
        try:
            async with Deadline.after(CANARY_TIMEOUT_SECONDS).kept("the canary"):
                await ready()
        except TandemError as error:
            self._fail(error)
        else:
            if not self._serving:
                self._tell(serving=True)
                log.info("serving again", service=self._service)

    def _fail(self, error: TandemError) -> None:
        if self._serving:
            self._tell(serving=False)
            log.warning(
                "not serving", service=self._service, reason=error.reason, cause=error.message
            )

    def _tell(self, *, serving: bool) -> None:
        statuses = health_pb2.HealthCheckResponse
        status = statuses.SERVING if serving else statuses.NOT_SERVING
        self._serving = serving
        self._note(serving)
        self._servicer.set_statuses(dict.fromkeys(self._names, status))
