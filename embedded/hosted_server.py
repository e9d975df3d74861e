"""Answers calls to a service of this process as its own process would, without a connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from embedded.local_server import LocalCall, LocalServer
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.metrics import REFUSALS, RPC_DURATION, RPC_INFLIGHT, kept_series
from tandem.chassis.telemetry.tracing import exemplar, tracing
from tandem.errors import InternalFault, TandemError

log = get_logger()

T = TypeVar("T")

_PROBES = "/grpc.health.v1.Health/"


class HostedServer(LocalServer):
    """Counts and traces each call under the service's name.

    An exception that is no `TandemError` is logged and becomes InternalFault, so that it degrades a
    search, and does not end it. There is no admission, no token and no line in the access log: the
    orchestrator is the only caller, and admitted the call of which this is a part.
    """

    def __init__(self, name: str) -> None:
        """`name` is the label in metrics, for example "encoder"."""
        super().__init__()
        self._name = name
        self._inflight = RPC_INFLIGHT.labels(name)
        self._durations = kept_series(RPC_DURATION)

    async def run(
        self, path: str, work: Callable[[LocalCall], Awaitable[T]], timeout_seconds: float | None
    ) -> T:
        """Returns what the work of a call returns; raises a TandemError."""
        if path.startswith(_PROBES):
            return await super().run(path, work, timeout_seconds)
        method = path.rpartition("/")[2]
        start_time = time.perf_counter()
        code = "OK"
        self._inflight.inc()
        try:
            with tracing().stage(method, {"rpc.method": method}):
                return await super().run(path, work, timeout_seconds)
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except TandemError as error:
            code = error.status
            REFUSALS.labels(self._name, method, error.reason).inc()
            raise
        except Exception as error:
            code = InternalFault.status
            log.error("internal fault", service=self._name, method=method, exc_info=error)
            raise InternalFault(why=f"{method} failed") from None
        finally:
            self._inflight.dec()
            seconds = time.perf_counter() - start_time
            self._durations(self._name, method, code).observe(seconds, exemplar())
