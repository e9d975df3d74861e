"""Checks that JSON fits a message: objects, lists and plain values where its fields have them.

`json_format` takes what protobuf's mapping of JSON does not have: it iterates over a text letter by
letter, and keeps the last of two names of one field.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from gateway_svc.plain_value import odd_value

# Others have a JSON of their own: a Duration is a text.
_OUR_PACKAGE = "tandem.v1"


_WHOLE = "the body"


def misshapen(value: Any, message: Message) -> str:  # noqa: ANN401 (JSON)
    """Returns what is wrong in the JSON of such a message, by its place; empty if nothing is."""
    # The stubs know of two types of descriptors, of which fields have only one.
    kind: Any = message.DESCRIPTOR
    return _misshapen(value, kind, _WHOLE)


def _misshapen(value: Any, kind: Descriptor, where: str) -> str:  # noqa: ANN401 (JSON)
    if not isinstance(value, dict):
        return f"{where} is not a JSON object"
    fields = _fields_of(kind)
    given: dict[str, str] = {}
    for name, each in value.items():
        if (field := fields.get(name)) is None:
            continue  # json_format knows what to say of it.
        place = name if where == _WHOLE else f"{where}.{name}"
        if (other := given.setdefault(field.name, name)) != name:
            return f"{place} and {other} are one field, and both are set"
        if each is None:
            continue
        group = field.containing_oneof
        if group is not None and (other := given.setdefault(f"oneof {group.name}", name)) != name:
            return f"{where} has both {other} and {name}"
        if why := _misshapen_field(each, field, place):
            return why
    return ""


def _misshapen_field(value: Any, field: FieldDescriptor, where: str) -> str:  # noqa: ANN401 (JSON)
    if _is_map(field):
        if not isinstance(value, dict):
            return f"{where} is not a JSON object"
        elements = [(f"{where}[{key!a:.64}]", each) for key, each in value.items()]
        field = field.message_type.fields_by_name["value"]
    elif field.is_repeated:
        if not isinstance(value, list):
            return f"{where} is not a list"
        elements = [(f"{where}[{number}]", each) for number, each in enumerate(value)]
    else:
        elements = [(where, value)]
    return next(filter(None, (_misshapen_element(each, field, at) for at, each in elements)), "")


def _misshapen_element(
    value: Any,  # noqa: ANN401 (JSON)
    field: FieldDescriptor,
    where: str,
) -> str:
    if value is None:
        return f"{where} is null"
    kind = field.message_type
    if kind is None:
        return f"{where} {why}" if (why := odd_value(value, field)) else ""
    return _misshapen(value, kind, where) if kind.file.package == _OUR_PACKAGE else ""


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@lru_cache
def _fields_of(kind: Descriptor) -> dict[str, FieldDescriptor]:
    """Returns the fields by both of their names in JSON."""
    return {name: each for each in kind.fields for name in (each.name, each.json_name)}
