"""Counts and times calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.calls.status import REASON_KEY
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.interceptors.outcome import code_name
from tandem.chassis.telemetry.metrics import REFUSALS, RPC_DURATION, RPC_INFLIGHT, kept_series
from tandem.chassis.telemetry.tracing import exemplar


class MetricsInterceptor(AroundInterceptor):
    """Observes `tandem_rpc_duration_seconds` and `tandem_rpc_inflight_count`.

    Only existing methods reach it, so callers cannot invent labels.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._inflight = RPC_INFLIGHT.labels(service)
        self._durations = kept_series(RPC_DURATION)

    @contextmanager
    def around(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        """Observes the call when it ends."""
        start_time = time.perf_counter()
        fault: BaseException | None = None
        self._inflight.inc()
        try:
            yield
        except BaseException as error:
            fault = error
            raise
        finally:
            self._inflight.dec()
            duration_seconds = time.perf_counter() - start_time
            code = code_name(context, fault)
            self._durations(self._service, method, code).observe(duration_seconds, exemplar())
            if code != "OK" and (reason := dict(context.trailing_metadata() or ()).get(REASON_KEY)):
                REFUSALS.labels(self._service, method, reason).inc()
