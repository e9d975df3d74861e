"""Counts, times and logs calls; never their content."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.access.call_log import CallLog
from tandem.chassis.calls.status import REASON_KEY
from tandem.chassis.interceptors.handlers import AroundInterceptor, Passed, method_of, nothing
from tandem.chassis.telemetry.metrics import REFUSALS, RPC_DURATION, RPC_INFLIGHT, kept_series
from tandem.chassis.telemetry.tracing import exemplar

# The caller's deadline runs on its own clock, which started when it sent the call.
_TRANSIT_SECONDS = 0.05

_NAMES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


class ObservationInterceptor(AroundInterceptor):
    """Observes the metrics of calls, and logs method, outcome and duration of each.

    Only existing methods reach it, so callers cannot invent labels.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._inflight = RPC_INFLIGHT.labels(service)
        self._durations = kept_series(RPC_DURATION)
        self._log = CallLog()

    @contextmanager
    def around(
        self, path: str, sent: object, context: grpc.aio.ServicerContext
    ) -> Iterator[Passed]:
        """Observes the call when it ends; its answer is being sent by then."""
        start_time = time.perf_counter()
        # Read now: a stream whose caller has gone is closed after gRPC freed the call, and reading
        # then crashes the process.
        peer = context.peer()
        fault: BaseException | None = None
        self._inflight.inc()
        try:
            yield sent, nothing
        except BaseException as error:
            fault = error
            raise
        finally:
            self._inflight.dec()
            seconds = time.perf_counter() - start_time
            method, code = method_of(path), code_name(context, fault)
            self._durations(self._service, method, code).observe(seconds, exemplar())
            fields = {"method": method, "duration_seconds": round(seconds, 6), "peer": peer}
            if code != "OK" and (reason := dict(context.trailing_metadata() or ()).get(REASON_KEY)):
                REFUSALS.labels(self._service, method, reason).inc()
                fields["reason"] = reason
            self._log.write(code, fields)


def code_name(context: grpc.aio.ServicerContext, fault: BaseException | None) -> str:
    """Returns the name of the call's status code, given the exception of its handler."""
    if isinstance(fault, asyncio.CancelledError):
        # gRPC cancels the handler in both cases; the remaining time tells which it was.
        remaining = context.time_remaining()
        out_of_time = remaining is not None and remaining <= _TRANSIT_SECONDS
        return "DEADLINE_EXCEEDED" if out_of_time else "CANCELLED"
    code = context.code()
    # After an abort, also one that could not be sent because gRPC had ended the call itself, as it
    # does for headers over its limit.
    if isinstance(code, grpc.StatusCode):
        return str(code.name)
    if isinstance(fault, GeneratorExit | grpc.aio.InternalError):
        # gRPC cannot send: the caller has gone.
        return "CANCELLED"
    if fault is not None and not isinstance(fault, grpc.aio.AbortError):
        return "UNKNOWN"
    # The number of a code, or None for OK.
    return _NAMES.get(code or 0, "UNKNOWN")
