"""Reads texts such as `margin=0.2` as values of a dataclass's fields, by the fields' types."""

import difflib
from collections.abc import Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

_TRUTHS: Final = {"true": True, "false": False}
_KINDS: Final = {int: "an integer", float: "a number", bool: "true or false"}


def field_settings(
    kind: type, settings: Sequence[str], what: str, hidden: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the value of each `field=value`, by the field's name.

    `what` has the fields, in messages, and those that are `hidden` are not listed. Raises
    ValueError for a text without "=", a field that does not exist or is given twice, and a value of
    another type.
    """
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ValueError(f"--set {setting}: write it as field=value, such as margin=0.2")
        if name not in types:
            known = [each.name for each in fields(kind) if each.name not in hidden]
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise ValueError(
                f"{what} has no field {name!r}{meant} The fields are {', '.join(known)}"
            )
        if name in values:
            raise ValueError(f"--set {name} is given twice; give it once")
        values[name] = _value(name, text, types[name])
    return values


def _value(name: str, text: str, kind: Any) -> Any:  # noqa: ANN401  whatever a field's type is
    """Returns the text as the field's type; raises ValueError naming what is expected."""
    if kind is str:
        return text
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"--set {name} is {text!r}, not one of {', '.join(get_args(kind))}")
        return text
    if get_origin(kind) is UnionType:
        [kind] = [each for each in get_args(kind) if each is not type(None)]
        if text.lower() == "none":
            return None
    try:
        if get_origin(kind) is tuple:
            parts = text.split(",")
            if len(parts) != len(get_args(kind)):
                raise ValueError
            return tuple(int(part) for part in parts)
        if kind is bool:
            return _TRUTHS[text.lower()]
        return kind(text.replace("_", "") if kind is int else text)
    except (KeyError, ValueError) as error:
        expected = _KINDS.get(kind, "two integers with a comma, such as 32,8")
        raise ValueError(f"--set {name} is {text!r}, not {expected}") from error
