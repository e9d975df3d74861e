"""Checks texts, numbers, bytes and flags in JSON, of which `json_format` reads more than it should.

It skips what is not base64, takes `true` for a number, and numbers as Python writes them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][-+]?[0-9]{1,3})?")
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
# Standard and URL-safe.
_BASE64 = (string.ascii_letters + string.digits + "+/-_").encode()
# A piece at a time, because other threads, such as the event loop, wait for each.
_PIECE_CHARACTERS = 256 * 1024


def odd_value(value: Any, field: FieldDescriptor) -> str:  # noqa: ANN401 (JSON)
    """Returns what is wrong with a value that is neither an object nor a list; empty if nothing."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _odd_bytes(value)
    return _CHECKS[field.cpp_type](value)


def _odd_text(value: Any) -> str:  # noqa: ANN401 (JSON)
    if not isinstance(value, str):
        return "is not a text"
    # Encoding tells; it is slow only where a text is not ASCII.
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        return "has a lone surrogate"
    return ""


def _odd_bytes(value: Any) -> str:  # noqa: ANN401 (JSON)
    if not isinstance(value, str):
        return "is not base64 text"
    padding_size = len(value[-2:]) - len(value[-2:].rstrip("="))
    end = len(value) - padding_size
    starts = range(0, end, _PIECE_CHARACTERS)
    pieces = (value[start : min(start + _PIECE_CHARACTERS, end)] for start in starts)
    # Four characters are three bytes, so one alone is less than a byte.
    if end % 4 == 1 or any(_has_others(each) for each in pieces):
        return "is not base64"
    return ""


def _has_others(piece: str) -> bool:
    return not piece.isascii() or bool(piece.encode().translate(None, _BASE64))


def _odd_flag(value: Any) -> str:  # noqa: ANN401 (JSON)
    return "" if isinstance(value, bool) else "is neither true nor false"


def _odd_whole(value: Any) -> str:  # noqa: ANN401 (JSON)
    # A text may have an exponent, whose value json_format checks.
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not (is_whole or _is_written(value)):
        return "is not a whole number"
    return ""


def _odd_number(value: Any) -> str:  # noqa: ANN401 (JSON)
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            float(value)
        except OverflowError:
            return "is too large"
    elif not isinstance(value, float) and not _is_written(value, _NOT_FINITE):
        return "is not a number"
    return ""


def _odd_name(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Returns what is wrong with an enum's value; an unknown name is refused later, with a list."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return "" if is_number or isinstance(value, str) else "is not the name of a value"


def _is_written(value: Any, also: frozenset[str] = frozenset()) -> bool:  # noqa: ANN401 (JSON)
    """Returns whether a text is a number, as protobuf writes large ones, or one of `also`."""
    return isinstance(value, str) and (_NUMBER.fullmatch(value) is not None or value in also)


_CHECKS: dict[int, Callable[[Any], str]] = {
    FieldDescriptor.CPPTYPE_STRING: _odd_text,
    FieldDescriptor.CPPTYPE_BOOL: _odd_flag,
    FieldDescriptor.CPPTYPE_ENUM: _odd_name,
    FieldDescriptor.CPPTYPE_FLOAT: _odd_number,
    FieldDescriptor.CPPTYPE_DOUBLE: _odd_number,
    FieldDescriptor.CPPTYPE_INT32: _odd_whole,
    FieldDescriptor.CPPTYPE_UINT32: _odd_whole,
    FieldDescriptor.CPPTYPE_INT64: _odd_whole,
    FieldDescriptor.CPPTYPE_UINT64: _odd_whole,
}
