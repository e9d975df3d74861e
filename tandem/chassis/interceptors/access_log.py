"""Logs one line a call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tandem.chassis.access.call_log import CallLog
from tandem.chassis.calls.status import REASON_KEY
from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.interceptors.outcome import code_name


class AccessLogInterceptor(AroundInterceptor):
    """Logs method, outcome and duration of each call; never its content."""

    def __init__(self) -> None:
        super().__init__()
        self._log = CallLog()

    @contextmanager
    def around(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        """Logs the call when it ends; its answer is being sent by then."""
        start_time = time.perf_counter()
        # Read now: a stream whose caller has gone is closed after gRPC freed the call, and reading
        # then crashes the process.
        peer = context.peer()
        fault: BaseException | None = None
        try:
            yield
        except BaseException as error:
            fault = error
            raise
        finally:
            code = code_name(context, fault)
            fields: dict[str, object] = {
                "method": method,
                "duration_seconds": round(time.perf_counter() - start_time, 6),
                "peer": peer,
            }
            if code != "OK" and (reason := dict(context.trailing_metadata() or ()).get(REASON_KEY)):
                fields["reason"] = reason
            self._log.write(code, fields)
