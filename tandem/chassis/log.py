"""The log: one JSON object a line on stderr, an event with fields. Never content, never tokens."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tandem.chassis.request_id import current_request_id
from tandem.chassis.tracing import current_trace


def configure(service: str, stream: TextIO | None = None) -> None:
    """Sends this process's events to `stream`, stderr by default, each naming `service`.

    The standard library's loggers (gRPC's, asyncio's) come out the same way, from WARNING up;
    gRPC's C++ core writes its few lines to stderr by itself.
    """

    def add_service(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    shared: list[Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.stdlib.add_log_level,
        add_service,
        _add_ids,
        # The traceback as text: structlog's own dictionaries would show locals, so content.
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(_ROOT).setLevel(logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Returns the logger of the module `name`; may be called at import, before `configure`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(f"{_ROOT}.{name}")
    return logger


# Ours log from INFO up, so they hang under a name of their own.
_ROOT = "tandem_log"


def _add_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    if request_id := current_request_id():
        event["request_id"] = request_id
    if (trace := current_trace()) is not None:
        event["trace_id"] = trace.trace_id
    return event
