"""Checks the types of a call's arguments, and names the argument at fault.

Callers without a type checker would otherwise get an error of protobuf's, or none: a str is an
iterable of one-letter ids.
"""

import enum
import math
import numbers
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import SupportsFloat, SupportsIndex, TypeVar

from tandem.errors import RequestMalformed

_Value = TypeVar("_Value")
_Member = TypeVar("_Member", bound=enum.Enum)


def checked_type(
    name: str, value: object, kinds: type[_Value] | tuple[type[_Value], ...], remedy: str
) -> _Value:
    """Returns the value; raises RequestMalformed, with what to send, for another type."""
    if not isinstance(value, kinds):
        raise mistyped(name, value, remedy)
    return value


def checked_flag(name: str, value: object) -> bool:
    """Returns the value as a bool, NumPy's too; raises RequestMalformed."""
    if type(value).__name__ in ("bool", "bool_"):  # without importing NumPy
        return bool(value)
    raise mistyped(name, value, "send True or False")


def checked_integer(name: str, value: object) -> int:
    """Returns the value as an int, NumPy's too; raises RequestMalformed."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise mistyped(name, value, "send an int")
    return value.__index__()


def checked_real(name: str, value: object) -> float:
    """Returns the value as a float, NumPy's too; raises RequestMalformed. NaN passes."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise mistyped(name, value, "send a float")
    return float(value)


def checked_timeout_seconds(value: object) -> float:
    """Returns a client's timeout; raises ValueError unless it is a number above 0."""
    seconds = math.nan
    if not isinstance(value, bool) and isinstance(value, SupportsFloat):
        seconds = float(value)
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout_seconds is {value!r}; give a number above 0")
    return seconds


def checked_elements(name: str, values: Iterable[_Value], remedy: str) -> Iterable[_Value]:
    """Returns the iterable; raises RequestMalformed for a str, bytes, a dict, or no iterable."""
    is_one_value = isinstance(values, str | bytes | bytearray | Mapping)
    if is_one_value or not isinstance(values, Iterable):
        raise mistyped(name, values, remedy)
    return values


def checked_member(name: str, value: object, kind: type[_Member]) -> _Member:
    """Returns the member of an enum, which may be named; raises RequestMalformed with all names.

    A file of settings or of a pipeline has no enums.
    """
    if isinstance(value, kind):
        return value
    members = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
    if not isinstance(value, str):
        raise mistyped(name, value, f"send one of {members}, or its name")
    if (member := kind.__members__.get(value.upper())) is None:
        raise RequestMalformed(why=f"{name} is {value[:80]!a}", remedy=f"send one of {members}")
    return member


def mistyped(name: str, value: object, remedy: str) -> RequestMalformed:
    """Returns the error of an argument that is of a wrong type."""
    kind = "None" if value is None else f"of type {type(value).__name__}"
    if isinstance(value, Path):
        kind = f"the path {str(value)!a}, whose file is not read"
    return RequestMalformed(why=f"{name} is {kind}", remedy=remedy)
