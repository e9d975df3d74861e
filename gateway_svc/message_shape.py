"""Checks that JSON has objects and lists where a message has messages and repeated fields.

`json_format` iterates over whatever stands there: over a text, letter by letter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

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
    for name, each in value.items():
        if each is None or (field := fields.get(name)) is None:
            continue  # json_format knows what to say of these.
        place = name if where == _WHOLE else f"{where}.{name}"
        if why := _misshapen_field(each, field, place):
            return why
    return ""


def _misshapen_field(value: Any, field: FieldDescriptor, where: str) -> str:  # noqa: ANN401 (JSON)
    if _is_map(field):
        if not isinstance(value, dict):
            return f"{where} is not a JSON object"
        elements = [(f"{where}[{key!a:.64}]", each) for key, each in value.items()]
        kind = field.message_type.fields_by_name["value"].message_type
    elif field.is_repeated:
        if not isinstance(value, list):
            return f"{where} is not a list"
        elements = [(f"{where}[{number}]", each) for number, each in enumerate(value)]
        kind = field.message_type
    else:
        elements, kind = [(where, value)], field.message_type
    if kind is None or kind.file.package != _OUR_PACKAGE:
        return ""
    found = (_misshapen(each, kind, place) for place, each in elements if each is not None)
    return next(filter(None, found), "")


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@lru_cache
def _fields_of(kind: Descriptor) -> dict[str, FieldDescriptor]:
    """Returns the fields that hold messages or lists, by both of their names in JSON."""
    held = [each for each in kind.fields if each.is_repeated or each.message_type is not None]
    return {name: each for each in held for name in (each.name, each.json_name)}
