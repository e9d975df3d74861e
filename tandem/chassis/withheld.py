"""What of a fault, or of a library's line, may stand in a log: where and of what kind it is.

Messages quote what they complain of: a header, a token, a text, bytes of a picture. So of an
exception its class and its frames are told, and of a library's line what it was before any value
was filled in.
"""

from __future__ import annotations

import copy
import logging
import os
import re
import traceback
from collections.abc import Iterator
from types import TracebackType

import grpc

from tandem.errors import TandemError

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

WITHHELD = "a library's line, withheld"

_OURS = {"tandem", "orchestrator_svc", "encoder_svc", "index_svc", "rerank_svc"}
# Their lines are put together before they are logged, and begin with words of their own.
_BEGIN_WITH_WORDS = {"asyncio", "concurrent", "grpc"}
_WORDS = re.compile(r"[A-Za-z][A-Za-z_ ]*")
_FRAME_COUNT = 40
_LINE_LENGTH = 200
# What anybody can have grpc say as often as they like, with a traceback: that a header is no UTF-8,
# for which the call is refused by name, and that they hung up before they were answered.
_CALLERS_DOING = ("Invalid encoding on %s", "ExecuteBatchError raised in core by servicer method ")


def is_told(record: logging.LogRecord) -> bool:
    """Returns whether a line is to be written at all."""
    return not (isinstance(record.msg, str) and record.msg.startswith(_CALLERS_DOING))


def is_ours(record: logging.LogRecord) -> bool:
    """Returns whether the line is from our own packages, which know what they must not say."""
    return record.name.partition(".")[0] in _OURS


def without_values(record: logging.LogRecord) -> logging.LogRecord:
    """Returns a line with nothing in it that its library was given; ours as they are."""
    if is_ours(record):
        return record
    kept = copy.copy(record)
    kept.msg, kept.args = _kind(record), None
    kept.exc_text = kept.stack_info = None
    return kept


def told_traceback(exc_info: ExcInfo) -> str:
    """Returns the frames and classes of an exception and of those that led to it."""
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
    """Returns the class, with what the system, gRPC or our own table says beside it."""
    name = type(error).__qualname__
    if isinstance(error, TandemError):
        return f"{name}: {error.reason}"
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{name}: {error.code().name}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{name}: [Errno {error.errno}] {os.strerror(error.errno)}"
    if isinstance(error, BaseExceptionGroup):
        return f"{name}: {', '.join(map(_named, error.exceptions))}"
    return name
