"""Converts dataclasses to messages whose fields have the same names, and back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

Kind = TypeVar("Kind")


def same_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 (any dataclass)
    """Returns the arguments of the message's constructor; a nested dataclass becomes a dict."""
    return {
        each.name: same_fields(part) if is_dataclass(part) else part
        for each in fields(value)
        if (part := getattr(value, each.name)) is not None
    }


def of_same_fields(kind: type[Kind], message: Message, **nested: type) -> Kind:
    """Returns the dataclass of a message, with None for an optional field that it lacks.

    `nested` has the dataclasses of the fields that are messages.
    """
    values: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        value = getattr(message, each.name)
        if message.DESCRIPTOR.fields_by_name[each.name].has_presence:
            if not message.HasField(each.name):
                value = None
            elif each.name in nested:
                value = of_same_fields(nested[each.name], value)
        values[each.name] = value
    return kind(**values)
