"""Writes messages as JSON by protobuf's mapping, as `json_format` does, in half of its time.

What to write of a field is found once for each kind of message, and not for each value. Pieces go
into one list, so that a picture's base64 is copied once.
"""

from __future__ import annotations

import json
import math
import struct
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from json.encoder import encode_basestring
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tandem.contract.attribute_wire import value_from_proto

Write = Callable[[Any, list[bytes]], None]
"""Adds the JSON of one value to the pieces."""

_FLOAT = struct.Struct("<f")
_WELL_KNOWN = "google.protobuf"
_DURATION = "google.protobuf.Duration"
_ATTRIBUTE_VALUE = "tandem.v1.AttributeValue"
_ROUNDED_FROM = 2**53


def write_json(message: Message, *, is_canonical: bool) -> bytes:
    """Returns protobuf's canonical JSON, or one with the proto's names and every field."""
    pieces: list[bytes] = []
    _message_writer(message.DESCRIPTOR, is_canonical)(message, pieces)
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class _Field:
    """What is written of a field: its name with a colon, its value, and what stands for none."""

    name: bytes
    write: Write
    default: bytes | None
    """None if the field is left out where it is not set."""


@cache
def _message_writer(kind: Descriptor, is_canonical: bool) -> Write:
    if kind.file.package == _WELL_KNOWN:
        return _write_duration if kind.full_name == _DURATION else _write_well_known
    # Made with the first message, because messages may hold themselves.
    fields: dict[int, _Field] = {}
    defaults: list[tuple[int, bytes]] = []

    def write(message: Any, pieces: list[bytes]) -> None:  # noqa: ANN401 (a message)
        if not fields:
            fields.update({each.number: _field(each, is_canonical) for each in kind.fields})
            defaults.extend(_defaults(fields))
        separator, written = b"{", set()
        for field, value in message.ListFields():
            number = field.number
            found = fields[number]
            pieces.append(separator + found.name)
            found.write(value, pieces)
            separator = b","
            written.add(number)
        for number, text in defaults:
            if number not in written:
                pieces.append(separator + text)
                separator = b","
        pieces.append(b"}" if separator == b"," else b"{}")

    is_plain = kind.full_name == _ATTRIBUTE_VALUE and not is_canonical
    return _attribute_writer(write) if is_plain else write


def _attribute_writer(write_typed: Write) -> Write:
    """Returns what writes a plain value, or a typed one where a reader's doubles would round it."""

    def write_attribute(message: Any, pieces: list[bytes]) -> None:  # noqa: ANN401 (a message)
        value = value_from_proto(message)
        if value is None or (isinstance(value, int | float) and not abs(value) < _ROUNDED_FROM):
            write_typed(message, pieces)
        else:
            pieces.append(json.dumps(value, ensure_ascii=False).encode())

    return write_attribute


def _field(field: FieldDescriptor, is_canonical: bool) -> _Field:
    # Left out of its stubs.
    json_name: str = field.json_name  # type: ignore[attr-defined]
    name = _text(json_name if is_canonical else field.name) + b":"
    write = _value_writer(field, is_canonical)
    if _is_map(field):
        return _Field(name, write, None if is_canonical else b"{}")
    if field.is_repeated:
        return _Field(name, _list_writer(write), None if is_canonical else b"[]")
    if is_canonical or field.has_presence:
        return _Field(name, write, None)
    pieces: list[bytes] = []
    write(field.default_value, pieces)
    return _Field(name, write, b"".join(pieces))


def _defaults(fields: Mapping[int, _Field]) -> list[tuple[int, bytes]]:
    return [
        (number, each.name + each.default)
        for number, each in fields.items()
        if each.default is not None
    ]


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def _value_writer(field: FieldDescriptor, is_canonical: bool) -> Write:
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        return _map_writer(_value_writer(value, is_canonical))
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message_writer(field.message_type, is_canonical)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return _enum_writer({each.number: _text(each.name) for each in field.enum_type.values})
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _write_bytes
    return _SCALARS[field.cpp_type]


def _list_writer(write: Write) -> Write:
    def write_list(values: Any, pieces: list[bytes]) -> None:  # noqa: ANN401 (a container)
        separator = b"["
        for value in values:
            pieces.append(separator)
            write(value, pieces)
            separator = b","
        # An empty list is not a field that is set.
        pieces.append(b"]")

    return write_list


def _map_writer(write: Write) -> Write:
    def write_map(values: Any, pieces: list[bytes]) -> None:  # noqa: ANN401 (a container)
        separator = b"{"
        for key, value in values.items():
            name = str(key).lower() if isinstance(key, bool) else str(key)
            pieces.append(separator + _text(name) + b":")
            write(value, pieces)
            separator = b","
        pieces.append(b"}")

    return write_map


def _enum_writer(names: Mapping[int, bytes]) -> Write:
    def write_enum(value: int, pieces: list[bytes]) -> None:
        # A number that has no name yet is written as it is.
        pieces.append(names.get(value) or b"%d" % value)

    return write_enum


def _write_text(value: str, pieces: list[bytes]) -> None:
    pieces.append(_text(value))


def _write_bytes(value: bytes, pieces: list[bytes]) -> None:
    pieces += (b'"', b2a_base64(value, newline=False), b'"')


def _write_bool(value: bool, pieces: list[bytes]) -> None:
    pieces.append(b"true" if value else b"false")


def _write_short(value: int, pieces: list[bytes]) -> None:
    pieces.append(b"%d" % value)


def _write_long(value: int, pieces: list[bytes]) -> None:
    pieces.append(b'"%d"' % value)


def _write_double(value: float, pieces: list[bytes]) -> None:
    pieces.append(repr(value).encode() if math.isfinite(value) else _NAMES[str(value)])


def _write_float(value: float, pieces: list[bytes]) -> None:
    pieces.append(_shortest(value).encode() if math.isfinite(value) else _NAMES[str(value)])


def _write_duration(value: Any, pieces: list[bytes]) -> None:  # noqa: ANN401 (a message)
    pieces.append(b'"' + value.ToJsonString().encode() + b'"')


def _write_well_known(value: Any, pieces: list[bytes]) -> None:  # noqa: ANN401 (a message)
    pieces.append(json_format.MessageToJson(value, indent=None, ensure_ascii=False).encode())


def _text(value: str) -> bytes:
    return encode_basestring(value).encode()


def _shortest(value: float) -> str:
    """Returns the fewest digits, at least 6, that are this number in four bytes."""
    if _is_same(text := f"{value:.7g}", value):
        return shorter if _is_same(shorter := f"{value:.6g}", value) else text
    return text if _is_same(text := f"{value:.8g}", value) else f"{value:.9g}"


def _is_same(text: str, value: float) -> bool:
    return _FLOAT.unpack(_FLOAT.pack(float(text))) == (value,)


_NAMES = {"nan": b'"NaN"', "inf": b'"Infinity"', "-inf": b'"-Infinity"'}
_SCALARS: Mapping[int, Write] = {
    FieldDescriptor.CPPTYPE_STRING: _write_text,
    FieldDescriptor.CPPTYPE_BOOL: _write_bool,
    FieldDescriptor.CPPTYPE_INT32: _write_short,
    FieldDescriptor.CPPTYPE_UINT32: _write_short,
    FieldDescriptor.CPPTYPE_INT64: _write_long,
    FieldDescriptor.CPPTYPE_UINT64: _write_long,
    FieldDescriptor.CPPTYPE_DOUBLE: _write_double,
    FieldDescriptor.CPPTYPE_FLOAT: _write_float,
}
