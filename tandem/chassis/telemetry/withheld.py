"""Decides what of an exception, or of a library's log line, may be logged.

Messages quote what they complain about: a header, a token, a text, bytes of an image. So we log an
exception's class and frames, and a library's line before its values are filled in.
"""

import copy
import logging
import os
import re
import traceback
from collections.abc import Iterator
from types import TracebackType

from tandem.errors import TandemError

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

WITHHELD = "a library's line, withheld"

_OURS = {"tandem", "orchestrator_svc", "encoder_svc", "index_svc", "rerank_svc", "gateway_svc"}
# These loggers format their lines before logging; the first words are their own.
_BEGIN_WITH_WORDS = {"asyncio", "concurrent", "grpc"}
_WORDS = re.compile(r"[A-Za-z][A-Za-z_ ]*")
_FRAME_COUNT = 40
_LINE_LENGTH = 200
# Lines that a caller can make grpc log as often as it likes, with a traceback: a header that is not
# UTF-8, for which the call is refused by name, and a hang-up before the answer.
_CALLERS_DOING = ("Invalid encoding on %s", "ExecuteBatchError raised in core by servicer method ")


def is_logged(record: logging.LogRecord) -> bool:
    """Returns whether to log a line at all."""
    return not (isinstance(record.msg, str) and record.msg.startswith(_CALLERS_DOING))


def is_ours(record: logging.LogRecord) -> bool:
    """Returns whether the line is from our own packages, which log no values of callers."""
    return record.name.partition(".")[0] in _OURS


def without_values(record: logging.LogRecord) -> logging.LogRecord:
    """Returns a library's line without its values; our own lines unchanged."""
    if is_ours(record):
        return record
    kept = copy.copy(record)
    kept.msg, kept.args = _kind(record), None
    kept.exc_text = kept.stack_info = None
    return kept


def traceback_without_values(exc_info: ExcInfo) -> str:
    """Returns the frames and classes of an exception and its causes."""
    return "\n\n".join(
        "".join(
            [
                "Traceback (most recent call last):\n",
                *traceback.StackSummary.extract(
                    traceback.walk_tb(error.__traceback__), limit=-_FRAME_COUNT
                ).format(),
                _named(error),
            ]
        )
        for error in reversed(list(_chain(exc_info[1])))
    )


def _kind(record: logging.LogRecord) -> str:
    if not isinstance(record.msg, str):
        return type(record.msg).__name__
    if record.args:
        return record.msg[:_LINE_LENGTH]
    if record.name.partition(".")[0] in _BEGIN_WITH_WORDS and (words := _WORDS.match(record.msg)):
        return words[0].strip()[:_LINE_LENGTH]
    return WITHHELD


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        suppressed = error.__suppress_context__
        error = error.__cause__ or (None if suppressed else error.__context__)


def _named(error: BaseException) -> str:
    """Returns the class, with the errno, gRPC status or our own reason."""
    name = type(error).__qualname__
    if isinstance(error, TandemError):
        return f"{name}: {error.reason}"
    # By its name, so that what logs needs no gRPC.
    if name == "AioRpcError":
        return f"{name}: {error.code().name}"  # type: ignore[attr-defined]
    if isinstance(error, OSError) and error.errno is not None:
        return f"{name}: [Errno {error.errno}] {os.strerror(error.errno)}"
    if isinstance(error, BaseExceptionGroup):
        return f"{name}: {', '.join(map(_named, error.exceptions))}"
    return name
