"""Allows a process as many open files as it may have, and reports it briefly if they run out.

Each connection of a caller is an open file. Shells often allow 1,024, and 4,096 or more on request.
"""

import asyncio
import errno
import os
import resource
import time
from collections.abc import Callable
from typing import Any

from tandem.chassis.telemetry.log import get_logger

log = get_logger()

_SCARCITIES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_QUIET_SECONDS = 60.0

LoopFaultHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]


def allow_open_files() -> int:
    """Raises the process's limit of open files as far as it may, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def brief_when_scarce(
    port: str, otherwise: LoopFaultHandler, clock: Callable[[], float] = time.monotonic
) -> LoopFaultHandler:
    """Returns a handler of an event loop's faults that reports refused connections once a minute.

    asyncio reports each of up to a thousand attempts a second to accept one, so a caller that keeps
    connections open could fill a disk with the log. `otherwise` handles every other fault.
    """
    quiet_until = -_QUIET_SECONDS

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal quiet_until
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _SCARCITIES:
            otherwise(loop, context)
        elif clock() >= quiet_until:
            quiet_until = clock() + _QUIET_SECONDS
            log.error(
                "connections cannot be accepted",
                port=port,
                cause=os.strerror(error.errno),
                open_file_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )

    return handle
