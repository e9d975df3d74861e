"""One log line a call."""

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

# Ours or our surroundings' fault; the rest is the caller's, or nobody's.
_SERVER_FAULTS = {"UNKNOWN", "INTERNAL", "DATA_LOSS", "UNAVAILABLE"}


class AccessLogInterceptor(AroundInterceptor):
    """Logs what was called, what came of it and how long that took; never what was in it."""

    @contextmanager
    def around(self, method: str, context: grpc.aio.ServicerContext) -> Iterator[None]:
        """Logs when the call ends, however it ends; the answer is on its way by then."""
        start_time = time.perf_counter()
        # Asked now: a stream whose caller has gone is closed after gRPC let go of the call, and
        # asking then crashes the process.
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
            if reason := dict(context.trailing_metadata() or ()).get(REASON_KEY):
                fields["reason"] = reason
            write = log.warning if code in _SERVER_FAULTS else log.info
            # Writing a line takes as long as a short search; its caller need not wait for it. The
            # line keeps the request's id: a callback runs in the context that it was set up in.
            asyncio.get_running_loop().call_soon(partial(write, "call served", **fields))
