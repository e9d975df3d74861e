"""Loads settings from environment variables into a frozen dataclass, and names each fault.

A service declares its own and loads them in `__main__`:

    @dataclass(frozen=True, kw_only=True)
    class EncoderSettings:
        triton_address: str = setting("host:port of Triton's gRPC endpoint")  # must be set
        max_inflight_count: int = setting("calls served at once", default=64)

    settings = load_or_exit(EncoderSettings, "ENCODER_")
"""

import dataclasses
import difflib
import math
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

SettingsClass = TypeVar("SettingsClass")

_MISSING = dataclasses.MISSING


class SettingsError(Exception):
    """The environment has invalid settings; the message has one line for each fault."""


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """The range of a numeric setting."""

    words: str
    """Completes "it must be …"."""
    contains: Callable[[float], bool]


ANY_NUMBER = Range("a number", lambda _: True)
AT_LEAST_0 = Range("at least 0", lambda value: value >= 0)
AT_LEAST_1 = Range("at least 1", lambda value: value >= 1)
OVER_0 = Range("over 0", lambda value: value > 0)
SHARE = Range("a share, 0 to 1", lambda value: 0 <= value <= 1)
SHARE_OVER_0 = Range("a share over 0, at most 1", lambda value: 0 < value <= 1)
SHARE_UNDER_1 = Range("a share, 0 to under 1", lambda value: 0 <= value < 1)
_PORT = Range("a port, 0 to 65535", lambda value: 0 <= value <= 65_535)
# By the last word of the name, which is the unit.
_RANGES: Mapping[str, Range] = {
    "bytes": AT_LEAST_0,
    "count": AT_LEAST_1,
    "port": _PORT,
    "seconds": AT_LEAST_0,
    "share": SHARE,
}


def setting(
    doc: str,
    default: Any = _MISSING,  # noqa: ANN401
    *,
    secret: bool = False,
    within: Range | None = None,
) -> Any:  # noqa: ANN401
    """Declares one setting. Without a `default` it is required; a `secret` is never shown.

    `within` is the range of a number. By default the unit at the end of the name sets it: a count
    is at least 1, seconds and bytes at least 0, a share 0 to 1.
    """
    metadata = {"doc": doc, "secret": secret, "within": within}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def load(
    settings_class: type[SettingsClass], prefix: str, environ: Mapping[str, str]
) -> SettingsClass:
    """Returns the settings from `environ`.

    A field `name` is the variable `<prefix>NAME`: a str, int, float, bool, or a comma-separated
    tuple[str, ...]. Raises `SettingsError` with every fault: a variable that is missing, of the
    wrong type, out of range, or unknown under the prefix, which is likely a typo.
    """
    types = typing.get_type_hints(settings_class)
    values: dict[str, Any] = {}
    faults: list[str] = []
    for field in dataclasses.fields(settings_class):  # type: ignore[arg-type]
        variable = prefix + field.name.upper()
        text = environ.get(variable)
        if text is None:
            if field.default is _MISSING:
                faults.append(f"{variable} is not set: {field.metadata['doc']}")
            continue
        try:
            values[field.name] = _parse(types[field.name], text)
        except ValueError:
            shown = "its value" if field.metadata["secret"] else f"'{text}'"
            faults.append(f"{variable}: {shown} is not of type {_type_name(types[field.name])}")
            continue
        faults += _range_faults(field, variable, values[field.name])
    faults += _unknown_variables(settings_class, prefix, environ)
    if faults:
        raise SettingsError("\n".join(faults))
    return settings_class(**values)


def table(settings_class: type[Any], prefix: str) -> str:
    """Returns the settings as a Markdown table: variable, type, default, meaning."""
    types = typing.get_type_hints(settings_class)
    rows = ["| variable | type | default | meaning |", "| --- | --- | --- | --- |"]
    for field in dataclasses.fields(settings_class):
        default = "must be set" if field.default is _MISSING else _format(field.default)
        variable = prefix + field.name.upper()
        rows.append(
            f"| `{variable}` | {_type_name(types[field.name])} | {default} "
            f"| {field.metadata['doc']} |"
        )
    return "\n".join(rows)


@contextmanager
def exiting_on_faults() -> Iterator[None]:
    """Prints a SettingsError of the body and exits 2; for `__main__` only."""
    try:
        yield
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def _range_faults(field: dataclasses.Field[Any], variable: str, value: object) -> list[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return []
    within = field.metadata["within"] or _RANGES.get(field.name.rpartition("_")[2], ANY_NUMBER)
    return [] if within.contains(value) else [f"{variable} must be {within.words}; it is {value}"]


def _unknown_variables(
    settings_class: type[Any], prefix: str, environ: Mapping[str, str]
) -> list[str]:
    known = [prefix + field.name.upper() for field in dataclasses.fields(settings_class)]
    faults = []
    for variable in sorted(environ):
        if variable.startswith(prefix) and variable not in known:
            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            faults.append(f"{variable} is not known; {hint}")
    return faults


def _parse(kind: Any, text: str) -> Any:  # noqa: ANN401 (any of the kinds below)
    parse = _PARSERS.get(kind)
    if parse is None:
        raise TypeError(f"a setting cannot be of type {kind}")
    return parse(text)


def _parse_bool(text: str) -> bool:
    match text.strip().lower():
        case "true" | "1" | "yes" | "on":
            return True
        case "false" | "0" | "no" | "off":
            return False
        case _:
            raise ValueError(text)


def _parse_float(text: str) -> float:
    value = float(text)
    # NaN makes no sense for any setting, and an infinite timeout is none.
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _type_name(kind: Any) -> str:  # noqa: ANN401
    return "comma-separated list" if kind == tuple[str, ...] else str(kind.__name__)


def _format(value: object) -> str:
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    if not text:
        return "empty"
    return f"`{text.lower() if isinstance(value, bool) else text}`"


_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: _parse_float,
    bool: _parse_bool,
    tuple[str, ...]: _parse_list,
}
