"""Counts what is in a request's bytes, so that nothing is made of them where it is too much.

Two bytes on the wire are an empty message, of which protobuf makes an object of a hundred: a
message of 64 MiB could become gigabytes. So the bytes are walked through first. It takes about a
quarter of a microsecond a field, and ends at the first that is one too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tandem.contract.request_limits import RequestLimit
from tandem.errors import BatchSizeOutOfRange, MessageTooLarge, RequestMalformed

# protobuf's own limit on messages within messages.
_MAX_DEPTH = 100
_MAX_VARINT_BYTES = 10
# A list that is too long is counted on for so far, to be told by its length.
_COUNTED_ON = 1_000
# A message of no more fields is walked through in less than a millisecond.
_SMALL_FIELD_COUNT = 1_000

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED_64: 8, _FIXED_32: 4}
_NOT_LAST_BYTES = bytes(range(0x80, 0x100))

_Shape: TypeAlias = "dict[int, _Shape | int]"
"""Of a message, by the key of a field as it stands on the wire: the shape of the messages in it,
or of a packed list the bytes of an element, 0 for varints. Fields with nothing in them are not
there, nor are those that nobody knows: protobuf keeps those as they are."""

_FIXED_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}


class RequestScanner:
    """Checks the messages of one method."""

    def __init__(self, method: str, descriptor: Descriptor | None, limit: RequestLimit) -> None:
        """Without a descriptor, what is inside of a field is not looked into."""
        self._method = method
        self._limit = limit
        self._shape: _Shape = {} if descriptor is None else _shape(descriptor, {})
        self._most: dict[int, tuple[str, int]] = {}
        for name, count in limit.max_counts.items():
            if descriptor is None:
                raise ValueError(f"{method} has no descriptor, so no field {name}")
            number = descriptor.fields_by_name[name].number
            self._most[number << 3 | _BYTES] = (name, count)

    def check(self, data: bytes) -> None:
        """Returns where protobuf may parse the bytes.

        Raises MessageTooLarge, BatchSizeOutOfRange, or RequestMalformed for what is no message.
        """
        if len(data) > self._limit.max_bytes:
            raise MessageTooLarge(
                why=f"{self._method} takes {self._limit.max_bytes:,} bytes, it has {len(data):,}"
            )
        self._is_walked(data, self._limit.max_field_count)

    def check_small(self, data: bytes) -> bool:
        """Checks a message of few fields as `check` does; returns False for one of more fields.

        Elements of packed lists do not count here: they are counted without a walk.
        """
        return len(data) <= self._limit.max_bytes and self._is_walked(data, _SMALL_FIELD_COUNT)

    def _is_walked(self, data: bytes, max_step_count: int) -> bool:
        """Returns False where there are more fields to look at than so many."""
        try:
            return self._walk(data, max_step_count)
        except IndexError:
            _refuse("it ends in the middle of a field")

    def _walk(self, data: bytes, max_step_count: int) -> bool:
        counts = dict.fromkeys(self._most, 0)
        shape, position, end = self._shape, 0, len(data)
        around: list[tuple[_Shape, int]] = []
        fields_left = self._limit.max_field_count
        stop_at = max(0, fields_left - max_step_count)
        while True:
            if position >= end:
                if position > end:
                    _refuse("a field ends outside of its message")
                if not around:
                    break
                shape, end = around.pop()
                continue
            fields_left -= 1
            if fields_left < stop_at:
                if fields_left < 0:
                    self._refuse_many(counts)
                return False
            key = data[position]
            position += 1
            if key >= 0x80:
                key, position = _varint(data, position - 1)
            wire_type = key & 7
            if key < 8:
                _refuse("a field has the number 0")
            if wire_type == _BYTES:
                length = data[position]
                position += 1
                if length >= 0x80:
                    length, position = _varint(data, position - 1)
                field_end = position + length
                if field_end > end:
                    _refuse("a field ends outside of its message")
                if not around and key in counts:
                    counts[key] += 1
                    most = self._most[key][1]
                    if counts[key] > most:
                        if counts[key] > most + _COUNTED_ON:
                            self._refuse_count(key, counts[key], is_more=True)
                        position = field_end
                        continue
                inside = shape.get(key)
                if inside is None:
                    position = field_end
                elif isinstance(inside, int):
                    element_count = _element_count(data, position, field_end, inside)
                    fields_left -= element_count
                    stop_at = max(0, stop_at - element_count)
                    position = field_end
                else:
                    if len(around) >= _MAX_DEPTH:
                        _refuse(f"it is nested over {_MAX_DEPTH} deep")
                    around.append((shape, end))
                    shape, end = inside, field_end
            elif wire_type == _VARINT:
                if data[position] < 0x80:
                    position += 1
                else:
                    _, position = _varint(data, position)
            elif wire_type in _FIXED_BYTES:
                position += _FIXED_BYTES[wire_type]
            else:
                _refuse("it has groups, or fields of no known kind")
        if fields_left < 0:
            self._refuse_many(counts)
        for key, count in counts.items():
            if count > self._most[key][1]:
                self._refuse_count(key, count)
        return True

    def _refuse_many(self, counts: Mapping[int, int]) -> NoReturn:
        for key, count in counts.items():
            if count > self._most[key][1]:
                self._refuse_count(key, count, is_more=True)
        most = self._limit.max_field_count
        raise MessageTooLarge(why=f"{self._method} takes {most:,} values of fields, it has more")

    def _refuse_count(self, key: int, got: int, *, is_more: bool = False) -> NoReturn:
        name, most = self._most[key]
        raise BatchSizeOutOfRange(name=name, got=got, low=1, high=most, is_more=is_more)


def _shape(descriptor: Descriptor, made: dict[str, _Shape]) -> _Shape:
    if descriptor.full_name in made:
        return made[descriptor.full_name]
    # Noted before it is filled: a filter has filters in it.
    shape = made[descriptor.full_name] = {}
    for each in descriptor.fields:
        key = each.number << 3 | _BYTES
        if each.message_type is not None:
            shape[key] = _shape(each.message_type, made)
        elif each.is_repeated and each.type not in (
            FieldDescriptor.TYPE_STRING,
            FieldDescriptor.TYPE_BYTES,
        ):
            shape[key] = _FIXED_TYPES.get(each.type, 0)
    return shape


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the number at `position` and where what follows it begins."""
    value = 0
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise RequestMalformed(why="a number has over 10 bytes")


def _element_count(data: bytes, start: int, end: int, element_bytes: int) -> int:
    if element_bytes:
        return (end - start) // element_bytes
    # Of each varint the last byte alone is under 0x80.
    return len(data[start:end].translate(None, _NOT_LAST_BYTES))


def _refuse(why: str) -> NoReturn:
    raise RequestMalformed(why=why)
