"""Counts the fields of a message before protobuf parses it.

Protobuf turns two bytes on the wire, an empty message, into an object of a hundred bytes: a message
of 64 MiB could become gigabytes. So we scan the bytes first. That takes about a quarter of a
microsecond a field, and stops at the first field over the limit.
"""

from collections.abc import Mapping
from typing import NoReturn, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tandem.contract.methods import RequestLimit
from tandem.errors import BatchSizeOutOfRange, MessageTooLarge, RequestMalformed

# protobuf's own limit on messages within messages.
_MAX_DEPTH = 100
_MAX_VARINT_BYTES = 10
# How far a list over its limit is still counted, for the error message.
_COUNTED_ON = 1_000
# Scanning a message of this many fields takes less than a millisecond.
_SMALL_FIELD_COUNT = 1_000

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED_64: 8, _FIXED_32: 4}
_NOT_LAST_BYTES = bytes(range(0x80, 0x100))

_Shape: TypeAlias = "dict[int, _Shape | int]"
"""Maps the wire key of a field to the shape of its messages, or to the element size of a packed
list in bytes, 0 for varints. Other fields, also unknown ones, need no scan."""

_FIXED_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}


class MessageScanner:
    """Checks a stranger's messages of one kind: the requests of a method, or cursors."""

    def __init__(self, method: str, descriptor: Descriptor | None, limit: RequestLimit) -> None:
        """Errors name the `method`; without a descriptor, nested messages are not scanned."""
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
        """Returns if protobuf may parse the bytes.

        Raises MessageTooLarge, BatchSizeOutOfRange, or RequestMalformed if they are not a message.
        """
        if len(data) > self._limit.max_bytes:
            raise MessageTooLarge(
                why=f"{self._method} allows {self._limit.max_bytes:,} bytes, it has {len(data):,}"
            )
        self._is_walked(data, self._limit.max_field_count)

    def check_small(self, data: bytes) -> bool:
        """Checks a message of few fields as `check` does; returns False for a larger one.

        Elements of packed lists do not count, because they are counted without a scan.
        """
        return len(data) <= self._limit.max_bytes and self._is_walked(data, _SMALL_FIELD_COUNT)

    def _is_walked(self, data: bytes, max_step_count: int) -> bool:
        """Returns False if there are more fields than the limit."""
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
        raise MessageTooLarge(why=f"{self._method} allows {most:,} field values, it has more")

    def _refuse_count(self, key: int, got: int, *, is_more: bool = False) -> NoReturn:
        name, most = self._most[key]
        raise BatchSizeOutOfRange(name=name, got=got, low=1, high=most, is_more=is_more)


def _shape(descriptor: Descriptor, made: dict[str, _Shape]) -> _Shape:
    if descriptor.full_name in made:
        return made[descriptor.full_name]
    # Stored before it is filled, because a filter contains filters.
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
    """Returns the varint at `position`, and the position after it."""
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
    # Only the last byte of a varint is under 0x80.
    return len(data[start:end].translate(None, _NOT_LAST_BYTES))


def _refuse(why: str) -> NoReturn:
    raise RequestMalformed(why=why)
