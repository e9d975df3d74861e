"""Logs one line a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import grpc

from tandem.chassis.interceptors.around import AroundInterceptor
from tandem.chassis.interceptors.outcome import code_name
from tandem.chassis.log import get_logger
from tandem.chassis.status import REASON_KEY

log = get_logger()

# Faults of ours or of our environment; the others are the caller's.
_SERVER_FAULTS = {"UNKNOWN", "INTERNAL", "DATA_LOSS", "UNAVAILABLE"}


class AccessLogInterceptor(AroundInterceptor):
    """Logs method, outcome and duration of each call; never its content."""

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
            fields = {
                "method": method,
                "code": code,
                "duration_seconds": round(time.perf_counter() - start_time, 6),
                "peer": peer,
            }
            if code != "OK" and (reason := dict(context.trailing_metadata() or ()).get(REASON_KEY)):
                fields["reason"] = reason
            write = log.warning if code in _SERVER_FAULTS else log.info
            # Logging takes as long as a short search, so the caller does not wait for it. The
            # callback runs in this context, so the line keeps the request id.
            asyncio.get_running_loop().call_soon(partial(write, "call served", **fields))
