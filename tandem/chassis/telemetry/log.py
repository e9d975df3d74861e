"""Logs events as one JSON object a line on stderr. Never content, never tokens."""

import io
import logging
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from tandem.chassis.settings import SettingsError, exiting_on_faults, load, setting
from tandem.chassis.telemetry.request_id import current_request_id
from tandem.chassis.telemetry.tracing import current_trace
from tandem.chassis.telemetry.withheld import (
    is_logged,
    is_ours,
    traceback_without_values,
    without_values,
)

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSettings:
    """Configures how much is logged."""

    level: str = setting(f"the lowest level that is logged: {', '.join(_LEVELS)}", default="info")


def load_log_level_or_exit() -> int:
    """Returns the level by LOG_LEVEL; for `__main__` only.

    Exits 2 with a message if it is invalid.
    """
    # That variable only: other programs' names begin with LOG_ too.
    environ = {key: value for key, value in os.environ.items() if key == "LOG_LEVEL"}
    with exiting_on_faults():
        # Many programs write LOG_LEVEL=INFO.
        name = load(LogSettings, "LOG_", environ).level.strip().lower()
        if name not in _LEVELS:
            raise SettingsError(f"LOG_LEVEL is '{name}'; it is one of {', '.join(_LEVELS)}")
    return _LEVELS[name]


def configure(service: str, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Sends this process's events to `stream`, by default stderr, each with the service's name.

    The standard library's loggers (gRPC's, asyncio's) use the same format, from WARNING up, or from
    DEBUG at that level, and without the values in their messages (see `withheld`).
    """

    def add_service(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        # A process may run several services, whose lines name their own.
        event.setdefault("service", service)
        return event

    shared: list[Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.add_log_level,
        add_service,
        _add_ids,
        structlog.processors.ExceptionRenderer(traceback_without_values),
    ]
    output = _stderr() if stream is None else stream
    handler = _WithholdingHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_add_place, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    others_level = level if level == logging.DEBUG else max(level, logging.WARNING)
    logging.basicConfig(level=others_level, handlers=[handler], force=True)
    # Our events bypass the standard library, which would take twice as long a line, and every call
    # logs one.
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
    )


def log_stray_faults() -> None:
    """Logs uncaught exceptions, which Python would print with their values.

    It covers the whole process: threads, exceptions that cannot be raised, and warnings.
    """

    def of_thread(fault: threading.ExceptHookArgs) -> None:
        log.error("a thread ended with an exception", exc_info=fault.exc_value)

    def unraisable(fault: "sys.UnraisableHookArgs") -> None:
        log.error("an exception could not be raised", exc_info=fault.exc_value)

    log = get_logger()
    logging.captureWarnings(True)
    threading.excepthook = of_thread
    sys.unraisablehook = unraisable


def get_logger() -> FilteringBoundLogger:
    """Returns a logger; call it at import, also before `configure`."""
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def _add_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    if request_id := current_request_id():
        event["request_id"] = request_id
    if (trace := current_trace()) is not None:
        event["trace_id"] = trace.trace_id
    return event


class _LossyFile(io.FileIO):
    def write(self, data: Any) -> int:  # noqa: ANN401 (a buffer)
        """Writes what the disk takes: a full one must not fail the call that logs, nor the end."""
        with suppress(OSError):
            super().write(data)
        return len(data)


def _stderr() -> TextIO:
    """Returns stderr without a buffer, which would keep what a full disk refuses."""
    try:
        file = _LossyFile(sys.stderr.fileno(), "wb", closefd=False)
    except OSError:  # not a file, as in a test
        return sys.stderr
    return io.TextIOWrapper(file, "utf-8", "backslashreplace", write_through=True)


class _WithholdingHandler(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.addFilter(is_logged)

    def emit(self, record: logging.LogRecord) -> None:
        """Logs the line without the values in it."""
        super().emit(without_values(record))

    def handleError(self, record: logging.LogRecord) -> None:
        """Reports a line that cannot be logged; the standard library would print its values."""
        get_logger().error("a line cannot be logged", logger=record.name)


def _add_place(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    if not is_ours(record):
        event["logger"] = record.name
        event["place"] = f"{record.filename}:{record.lineno}"
    return event
