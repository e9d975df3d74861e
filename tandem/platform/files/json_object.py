"""Reads a JSON file of a model's folder into an object with typed fields.

Anything else raises a ValueError that names the file: another value, invalid or too deeply nested
JSON, numbers that are not finite, a git-lfs pointer instead of the file.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_MAX_BYTES: Final = 64 << 20
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_SHOWN_LENGTH: Final = 60

Kind = TypeVar("Kind")


class FileInvalid(ValueError):
    """A file has invalid content; the message begins with its path."""


def check_file(path: Path) -> None:
    """Raises FileInvalid unless the file exists and is not a git-lfs pointer."""
    if not path.is_file():
        raise FileInvalid(f"{path} is {'not a file' if path.exists() else 'missing'}")
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS_POINTER))
    except OSError as error:
        raise FileInvalid(f"{path} cannot be read: {error.strerror}") from error
    if start == _LFS_POINTER:
        raise FileInvalid(
            f"{path} is a git-lfs pointer and not the file itself; run git lfs pull in its folder"
        )
    if not start:
        raise FileInvalid(f"{path} is empty")


def read_object(path: Path) -> dict[str, Any]:
    """Returns a JSON file's object; raises FileInvalid for anything else."""
    check_file(path)
    if path.stat().st_size > _MAX_BYTES:
        raise FileInvalid(f"{path} has {path.stat().st_size:,} bytes, and {_MAX_BYTES:,} are read")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileInvalid(
            f"{path} is not UTF-8 at byte {error.start:,}; save it as UTF-8"
        ) from error
    except OSError as error:
        raise FileInvalid(f"{path} cannot be read: {error.strerror}") from error
    return object_of(text, path)


def object_of(text: str, name: object) -> dict[str, Any]:
    """Returns a JSON text's object; raises FileInvalid, which `name` begins, for anything else."""
    content = value_of(text, name)
    if not isinstance(content, dict):
        raise FileInvalid(f"{name} holds {shown(content)} and no object of fields")
    return content


def value_of(text: str, name: object) -> Any:  # noqa: ANN401  whatever the text holds
    """Returns a JSON text's value; raises FileInvalid, which `name` begins, for invalid JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise FileInvalid(f"{name} is nested too deeply") from error
    except ValueError as error:
        raise FileInvalid(f"{name} is not JSON: {error}") from error


def shown(value: object) -> str:
    """Returns a value's JSON for a message, truncated."""
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (RecursionError, TypeError, ValueError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 1]}…"


def from_fields(kind: type[Kind], values: Mapping[str, object]) -> Kind:
    """Returns the dataclass, if the fields have its types; lists become tuples.

    Raises ValueError naming every field that is missing, unknown or of another type, and the
    dataclass's own errors. A dataclass with a field `further` keeps unknown ones there.
    """
    types = get_type_hints(kind)
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    lacks = [
        name
        for name, each in known.items()
        if name not in values and each.default is MISSING and each.default_factory is MISSING
    ]
    faults = [f"it lacks {', '.join(lacks)}"] if lacks else []
    taken: dict[str, Any] = {}
    if known.pop("further", None):
        taken["further"] = {name: values[name] for name in values.keys() - known.keys()}
    elif unknown := sorted(values.keys() - known.keys()):
        faults.append(f"it has unknown fields: {shown(', '.join(unknown))}")
    for name in known.keys() & values.keys():
        try:
            taken[name] = _typed(values[name], types[name])
        except TypeError as error:
            faults.append(f"{name} is {shown(values[name])}, not {error}")
    if faults:
        raise ValueError("; ".join(sorted(faults)))
    return kind(**taken)


def within(name: str, value: object, low: float, high: float) -> None:
    """Raises ValueError, naming the field, unless low <= number <= high."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]
        raise ValueError(f"{name} is {shown(value)}, not {low:,} to {high:,}")


def _typed(value: object, kind: Any) -> Any:  # noqa: ANN401  whatever a field's type is
    """Returns the value converted to the type; raises TypeError naming what is expected."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        choices = get_args(kind)
        if value is None and NoneType in choices:
            return None
        [only] = [each for each in choices if each is not NoneType]
        return _typed(value, only)
    if origin is Literal:
        if value not in get_args(kind) or not isinstance(value, str):
            raise TypeError(f"one of {', '.join(get_args(kind))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError("a list")
        return tuple(_typed(each, get_args(kind)[0]) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise TypeError("an object")
        inner = get_args(kind)[1]
        return {name: _typed(each, inner) for name, each in value.items()}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if not isinstance(value, str) or value not in list(kind):
            raise TypeError(f"one of {', '.join(kind)}")
        return kind(value)
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise TypeError("an object")
        return _nested(kind, value)
    return _PLAIN[kind](value)


def _nested(kind: Any, value: Mapping[str, object]) -> Any:  # noqa: ANN401
    try:
        return from_fields(kind, value)
    except ValueError as error:
        raise TypeError(f"what it should be: {error}") from error


def _plain(kinds: type | tuple[type, ...], name: str) -> Callable[[object], object]:
    def checked(value: object) -> object:
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise TypeError(name)
        return value

    return checked


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise TypeError("a finite number")
    return number


_PLAIN: Final[Mapping[Any, Callable[[object], object]]] = {
    bool: _plain(bool, "true or false"),
    int: _plain(int, "an integer"),
    float: _number,
    str: _plain(str, "a text"),
    Any: lambda value: value,
}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it has {name}, which is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it has {text[:20]}, which is larger than any number")
    return number
