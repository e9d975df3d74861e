"""Protobuf bytes made by a message's descriptor: its fields, with values at and past their ends.

Bytes and not messages, because strangers send bytes: fields of the wrong type, twice, or unknown.
"""

import random
import struct
from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_MAX_DEPTH = 6

_INTEGERS = (
    *(0, 1, 2, 3, 10, 20, 63, 64, 65, 200, 201, 256, 257, 1_000, 1_001, 99_999),
    *(-1, -2, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63)),
)
_REALS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1e-3, 2.0, 1e30, -1e30, 5e-324, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
_TEXTS = (
    *("", " ", "x", "a\0b", "é", "漢字", "😀" * 10, "\u202e\u200d", "[SEP] [PAD]", "null", "-1"),
    *("../../etc/passwd", "http://127.0.0.1:1/cat.png", "'; DROP TABLE items; --", "%s%n", "{}"),
    *("Flat", "IVF4,Flat", "HNSW8", "PQ4", "auto", "nprobe", "OPQ999,IVF99999999,PQ8", "x" * 257),
)
_LONG_TEXT = "dog " * 20_000
_COUNTS = (0, 1, 1, 1, 2, 3, 10, 65)
_LARGE_COUNT = 2_000


class WireMaker:
    """Makes bytes; the same ones for the same seed."""

    def __init__(self, seed: int, known_values: Sequence[str | bytes]) -> None:
        """`known_values` are names and contents that mean something to who is asked."""
        self.chance = random.Random(seed)
        self._texts = [
            *(text.encode() for text in _TEXTS),
            *(value.encode() if isinstance(value, str) else value for value in known_values),
        ]

    def message(self, descriptor: Descriptor, depth: int = 0) -> bytes:
        """Returns a message with some of its fields, some of them twice."""
        if not descriptor.fields or depth > _MAX_DEPTH:
            return b""
        count = self.chance.randint(0, min(6, len(descriptor.fields)))
        fields = self.chance.choices(descriptor.fields, k=count)
        return b"".join(self.field(field, depth) for field in fields)

    def field(self, field: FieldDescriptor, depth: int = 0) -> bytes:
        """Returns one field, as often as is interesting."""
        count = self.chance.choice(_COUNTS) if field.is_repeated else 1
        if field.is_repeated and depth < 2 and self.chance.random() < 0.02:
            count = _LARGE_COUNT
            # The same one many times: to make so many would take longer than to read them.
            return self._one(field, _MAX_DEPTH) * count
        return b"".join(self._one(field, depth) for _ in range(count))

    def changed(self, message: Message) -> bytes:
        """Returns a valid message with one field of it, or of a message inside it, replaced."""
        copied = type(message)()
        copied.CopyFrom(message)
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            inside = self.chance.choice(_messages(copied))
            if not inside.DESCRIPTOR.fields:
                continue
            field = self.chance.choice(inside.DESCRIPTOR.fields)
            data = self.field(field) if self.chance.random() < 0.85 else b""
            try:
                made = type(inside).FromString(data)
            except DecodeError:
                return copied.SerializeToString() + data
            if self.chance.random() < 0.7:
                inside.ClearField(field.name)
            inside.MergeFrom(made)
        return copied.SerializeToString()

    def damaged(self, data: bytes) -> bytes:
        """Returns the bytes with some of them changed, added, or cut off."""
        changed = bytearray(data or b"\0")
        for _ in range(self.chance.choice([1, 2, 8])):
            place = self.chance.randrange(len(changed))
            match self.chance.randrange(4):
                case 0:
                    changed[place] = self.chance.randrange(256)
                case 1:
                    changed[place:place] = self.chance.randbytes(self.chance.randint(1, 9))
                case 2:
                    changed[place] ^= 1 << self.chance.randrange(8)
                case _:
                    del changed[place : place + self.chance.randint(1, 9)]
                    changed = changed or bytearray(1)
        return bytes(changed)

    def deep(self, descriptor: Descriptor) -> bytes:
        """Returns a message within a message within a message, as deep as 2,000 times."""
        numbers = [field.number for field in descriptor.fields if field.message_type] or [1]
        data = b""
        for _ in range(self.chance.choice([9, 50, 99, 101, 2_000])):
            data = _tagged(self.chance.choice(numbers), data)
        # A filter that does not hold, in one that does not hold, and so on.
        if "filter" in descriptor.fields_by_name and self.chance.random() < 0.7:
            data = b""
            for _ in range(self.chance.choice([7, 8, 9, 40, 97, 300])):
                data = _tagged(3, data)
            data = _tagged(descriptor.fields_by_name["filter"].number, data)
        return data

    def large(self, descriptor: Descriptor) -> bytes:
        """Returns about 1 MB of one field, or of an unknown one."""
        known = [field for field in descriptor.fields if _is_length(field)]
        if not known or self.chance.random() < 0.2:
            return _tagged(1_999, self.chance.randbytes(1_000_000))
        field = self.chance.choice(known)
        if field.is_repeated and self.chance.random() < 0.7:
            one = self._one(field, _MAX_DEPTH - 1)[:2_000]
            return one * (1_000_000 // max(20, len(one)))
        return _tagged(field.number, b"x " * 500_000)

    def _one(self, field: FieldDescriptor, depth: int) -> bytes:
        if self.chance.random() < 0.01:  # of a type that the field has not
            return _tagged(field.number, self.chance.randbytes(5))
        if field.message_type:
            return _tagged(field.number, self.message(field.message_type, depth + 1))
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return _tagged(field.number, self._text())
            case FieldDescriptor.TYPE_BYTES:
                return _tagged(field.number, self._bytes())
            case FieldDescriptor.TYPE_DOUBLE:
                return _tag(field.number, _FIXED_64) + struct.pack("<d", self._real())
            case FieldDescriptor.TYPE_FLOAT:
                return _tag(field.number, _FIXED_32) + struct.pack("<f", _as_float(self._real()))
            case FieldDescriptor.TYPE_ENUM:
                value = self.chance.choice([*range(9), 99, -1])
            case FieldDescriptor.TYPE_BOOL:
                value = self.chance.choice([0, 1, 2])
            case _:
                value = self._integer()
        return _tag(field.number, _VARINT) + _varint(value)

    def _integer(self) -> int:
        if self.chance.random() < 0.1:
            return self.chance.getrandbits(64) - 2**63
        return self.chance.choice(_INTEGERS)

    def _real(self) -> float:
        return self.chance.choice([*_REALS, self.chance.random()])

    def _text(self) -> bytes:
        roll = self.chance.random()
        if roll < 0.02:
            return b"\xff\xfe" + self.chance.randbytes(3)
        if roll < 0.04:
            return _LONG_TEXT[: self.chance.choice([8_191, 8_192, 8_193, 80_000])].encode()
        return self.chance.choice(self._texts)

    def _bytes(self) -> bytes:
        roll = self.chance.random()
        if roll < 0.4:
            return self.chance.choice(self._texts)
        if roll < 0.6:
            return self.damaged(self.chance.choice(self._texts))
        count = self.chance.choice([0, 1, 2, 191, 192, 193, 1_000])
        return struct.pack(f"<{count}f", *[_as_float(self._real())] * count)


def _messages(message: Message) -> list[Message]:
    """Returns the message and every one inside it that is set."""
    found = [message]
    for field, value in message.ListFields():
        if not field.message_type:
            continue
        if field.message_type.GetOptions().map_entry:
            values = [each for each in value.values() if isinstance(each, Message)]
        else:
            values = list(value) if field.is_repeated else [value]
        found += [inside for each in values for inside in _messages(each)]
    return found


def _is_length(field: FieldDescriptor) -> bool:
    return field.type in (
        FieldDescriptor.TYPE_STRING,
        FieldDescriptor.TYPE_BYTES,
        FieldDescriptor.TYPE_MESSAGE,
    )


def _as_float(value: float) -> float:
    return value if abs(value) < 3e38 or value != value or abs(value) == float("inf") else 3e38


def _tagged(number: int, data: bytes) -> bytes:
    return _tag(number, _LENGTH) + _varint(len(data)) + data


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)
