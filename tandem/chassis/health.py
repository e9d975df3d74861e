"""Whether a service is ready, found out by trying and told by grpc.health.v1."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.health_servicer import HealthServicer
from tandem.chassis.log import get_logger
from tandem.chassis.metrics import SERVING
from tandem.errors import DeadlineExceeded, TandemError

log = get_logger()

Probe = Callable[[], Awaitable[None]]

LIVENESS = "liveness"
"""The name under which health says whether this process answers at all.

Not "", which follows what the service stands on: a process that is restarted whenever something
behind it is away is away itself.
"""

WARM_RETRY_SECONDS = 0.5
CANARY_PERIOD_SECONDS = 1.0
# At least, between one that took long and the next.
CANARY_PAUSE_SECONDS = 0.1
# A canary with no answer by then is one that failed, whatever it waits for.
CANARY_TIMEOUT_SECONDS = 5.0


class Health:
    """The health of one service: alive, and NOT_SERVING until `watch` finds otherwise."""

    def __init__(self, service: str, service_names: Sequence[str]) -> None:
        self._service = service
        # "" is the process as a whole, which Kubernetes asks for by default.
        self._names = ("", *service_names)
        self._servicer = HealthServicer()
        self._serving = False
        self.has_left = False

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the health service to `server`; call before it starts.

        It says NOT_SERVING of all names but LIVENESS.
        """
        self._tell(serving=False)
        self._servicer.tell({LIVENESS: health_pb2.HealthCheckResponse.SERVING})
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def watch(self, warm: Probe, ready: Probe | None) -> None:
        """Retries `warm` while it raises `TandemError`, then says what `ready` finds, for ever.

        Anything else that `warm` raises ends the watch: a start that cannot succeed must not
        look like one that takes long.
        """
        await self._warm_up(warm)
        self._tell(serving=True)
        log.info("serving")
        took_seconds = 0.0
        while ready is not None:
            # After one that failed the whole of it: what is broken and hangs is others' to find.
            spent_seconds = took_seconds if self._serving else 0.0
            await asyncio.sleep(max(CANARY_PAUSE_SECONDS, CANARY_PERIOD_SECONDS - spent_seconds))
            start_time = time.monotonic()
            await self._try(ready)
            took_seconds = time.monotonic() - start_time

    def is_serving(self) -> bool:
        """Returns what was last told."""
        return self._serving

    def leave(self) -> None:
        """Says NOT_SERVING of every name, LIVENESS too; nothing watches any more."""
        self._serving = False
        self.has_left = True
        self._servicer.tell_all(health_pb2.HealthCheckResponse.NOT_SERVING)
        SERVING.labels(self._service).set(0)

    def end_watches(self) -> None:
        """Lets go of those who watch, before the server stops."""
        self._servicer.end_watches()

    async def _warm_up(self, warm: Probe) -> None:
        while True:
            try:
                return await warm()
            except TandemError as error:
                log.warning("not warm yet", reason=error.reason, cause=error.message)
            await asyncio.sleep(WARM_RETRY_SECONDS)

    async def _try(self, ready: Probe) -> None:
        try:
            async with asyncio.timeout(CANARY_TIMEOUT_SECONDS):
                await ready()
        except TimeoutError:
            self._fail(DeadlineExceeded(what="the canary"))
        except TandemError as error:
            self._fail(error)
        else:
            if not self._serving:
                self._tell(serving=True)
                log.info("serving again")

    def _fail(self, error: TandemError) -> None:
        if self._serving:
            self._tell(serving=False)
            log.warning("not serving", reason=error.reason, cause=error.message)

    def _tell(self, *, serving: bool) -> None:
        statuses = health_pb2.HealthCheckResponse
        status = statuses.SERVING if serving else statuses.NOT_SERVING
        self._serving = serving
        SERVING.labels(self._service).set(serving)
        self._servicer.tell(dict.fromkeys(self._names, status))
