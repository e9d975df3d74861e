"""Logs one line a call."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from tandem.chassis.access.callers import current_caller
from tandem.chassis.access.token_bucket import TokenBucket
from tandem.chassis.telemetry.log import get_logger

log = get_logger()

# Faults of ours or of our environment; the others are the caller's.
_SERVER_FAULTS = {"UNKNOWN", "INTERNAL", "DATA_LOSS", "UNAVAILABLE"}
# What anyone can have without a token, by sending a call.
_STRANGERS = {"UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT", "CANCELLED"}
_STRANGERS_LINES_PER_SECOND = 1.0
_STRANGERS_BURST = 200.0


class CallLog:
    """Writes one line a call, except for refused callers that are not known: they fill no disk.

    After some lines theirs are one a second, with the number of those left out. Metrics count all.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._strangers = TokenBucket(_STRANGERS_LINES_PER_SECOND, _STRANGERS_BURST, clock)
        self._unlogged_count = 0

    def write(self, code: str, fields: dict[str, object]) -> None:
        """Logs the end of the current call, after the loop's other work."""
        if code in _STRANGERS and current_caller() is None:
            if self._strangers.take(1):
                self._unlogged_count += 1
                return
            if self._unlogged_count:
                fields = fields | {"unlogged_count": self._unlogged_count}
                self._unlogged_count = 0
        write = log.warning if code in _SERVER_FAULTS else log.info
        # Logging takes as long as a short search, so the caller does not wait for it. The callback
        # runs in this context, so the line keeps the request id.
        asyncio.get_running_loop().call_soon(partial(write, "call served", code=code, **fields))
