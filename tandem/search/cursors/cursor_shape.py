"""Checks counts and lengths of a cursor's fields before it is parsed.

Two bytes on the wire make protobuf allocate an empty message of some fifty, so a forged cursor
could take thirty times its size in memory. This walks over the outermost fields and stops at the
first that no answer writes.
"""

from collections.abc import Mapping

from tandem.contract.limits import MAX_RETRIEVE_K
from tandem.errors import CursorInvalid
from tandem.v1 import search_cursor_pb2

# Of both modalities.
MAX_ITEM_COUNT = 2 * MAX_RETRIEVE_K

_VARINT, _LENGTH_DELIMITED = 0, 2
_MAX_VARINT_BYTES = 10

_NUMBERS = {field.name: field.number for field in search_cursor_pb2.SearchCursor.DESCRIPTOR.fields}
_MAX_BYTES: Mapping[int, int] = {
    _NUMBERS[name]: byte_count
    for name, byte_count in {
        "index_id": 63 + 7,
        "model_fingerprint": 4 * 128,
        # 1,000 missing shards.
        "coverage": 8 * 2**10,
        # With a remote cross-encoder's name.
        "rerank": 512,
        "degradations": 64,
        # 1,000 missing shards.
        "neighbours": 8 * 2**10,
        "item_ids": 256,
        # Three terms and five ranks take under 256 bytes.
        "explanations": 2**9,
        # Three numbers and a double.
        "hybrids": 48,
        "similarities": 4 * MAX_ITEM_COUNT,
        "match_logits": 4 * MAX_ITEM_COUNT,
        "match_probabilities": 4 * MAX_ITEM_COUNT,
        "scores": 4 * MAX_ITEM_COUNT,
        "neighbour_scores": 4 * MAX_ITEM_COUNT,
        "retrieve_ranks": _MAX_VARINT_BYTES * MAX_ITEM_COUNT,
        "modalities": _MAX_VARINT_BYTES * MAX_ITEM_COUNT,
    }.items()
}
"""By field number, for one occurrence of a length-delimited field."""
_EXPLANATIONS = _NUMBERS["explanations"]
# This version writes three score terms and five stages.
_MAX_EXPLANATION_PARTS = 16
_NUMERIC = {_NUMBERS[name] for name in ("return_n", "given_count", "model_version")}
_BY_ITEM = {_NUMBERS[name] for name in ("item_ids", "explanations", "hybrids")}
"""Fields that occur once an item; all others occur once."""


def check_cursor_shape(held: bytes) -> None:
    """Raises CursorInvalid for unknown, too many or too long fields."""
    counts: dict[int, int] = {}
    place = 0
    while place < len(held):
        tag, place = _varint(held, place)
        number, kind = tag >> 3, tag & 7
        counts[number] = counts.get(number, 0) + 1
        if counts[number] > (MAX_ITEM_COUNT if number in _BY_ITEM else 1):
            raise CursorInvalid(why="it has more items than an answer leaves")
        value, place = _varint(held, place)
        if kind == _VARINT and number in _NUMERIC:
            continue
        if kind != _LENGTH_DELIMITED or value > _MAX_BYTES.get(number, -1):
            raise CursorInvalid(why="it has a field that no answer writes")
        if number == _EXPLANATIONS:
            _check_explanation(held, place, min(place + value, len(held)))
        place += value
    if place != len(held):
        raise CursorInvalid(why="its payload is cut short")


def _check_explanation(held: bytes, place: int, end: int) -> None:
    """Raises CursorInvalid if it has more parts than there are terms and stages."""
    for _ in range(_MAX_EXPLANATION_PARTS):
        if place >= end:
            return
        _, place = _varint(held, place)
        length, place = _varint(held, place)
        place += length
    if place < end:
        raise CursorInvalid(why="an explanation has more parts than an answer writes")


def _varint(held: bytes, place: int) -> tuple[int, int]:
    """Returns the varint at `place`, and the place after it."""
    value = 0
    for count, byte in enumerate(held[place : place + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place + count + 1
    raise CursorInvalid(why="its payload cannot be read")
