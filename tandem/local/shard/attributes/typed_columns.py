"""Stores the attribute values of one name and type, and evaluates conditions on them.

Shapes: R rows, N values of a column, E words of all its lists, W wanted values.
"""

import math
from collections.abc import Callable, Collection
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem.contract.filtering.attributes import MAX_TEXTS_COUNT, AttributeValue
from tandem.contract.filtering.filters import Exists, InRange, OneOf, StartsWith, Value
from tandem.local.shard.attributes.growing_array import grown
from tandem.local.shard.attributes.row_values import Predicate, RowValues, Values
from tandem.local.shard.attributes.text_dictionary import (
    MAX_COMPARED_COUNT,
    TextDictionary,
    among_codes,
)

Condition: TypeAlias = OneOf | InRange | StartsWith | Exists

_NUMPY_TYPES: dict[type, type[np.generic]] = {int: np.int64, float: np.float64, bool: np.int8}
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_MAX_TABLE_SPAN = 2**20
_HASH_BITS = 16
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio (Fibonacci hashing)
_PLACE_STEP = 128
_MIN_COMPACTED_COUNT = 1024


class NumberColumn:
    """Stores numbers: 9 bytes a row for integers and reals of 64 bits, 2 for flags as 1 and 0."""

    def __init__(self, kind: type[int | float | bool]) -> None:
        self._kind = kind
        self._values = RowValues(_NUMPY_TYPES[kind])

    def __len__(self) -> int:
        """Returns how many rows have a value."""
        return len(self._values)

    def put(self, row: int, value: AttributeValue) -> None:
        """Sets the value of a row that has none."""
        assert isinstance(value, int | float)
        self._values.put(row, value)

    def drop(self, row: int) -> None:
        """Removes a row's value."""
        self._values.take(row)

    def mark(self, is_found_R: NDArray[np.bool_], condition: Condition) -> None:
        """Sets True in the rows whose value matches the condition."""
        match condition:
            case Exists():
                self._values.mark(is_found_R)
            case OneOf(_, values):
                if wanted := {self._kind(each) for each in values if _CAN_EQUAL[self._kind](each)}:
                    self._values.mark(is_found_R, _among(wanted))
            case InRange() if self._kind is float:
                self._values.mark(is_found_R, lambda values_N: _in_range(values_N, condition))
            case InRange() if self._kind is int:  # a range does not match flags
                # As integers: with a float bound numpy would round them to floats.
                low, high = _integer_range(condition)
                if low <= high:
                    self._values.mark(
                        is_found_R, lambda values_N: (values_N >= low) & (values_N <= high)
                    )


class TextColumn:
    """Stores texts as codes: 5 bytes a row, and about 140 more than each distinct text."""

    def __init__(self) -> None:
        self._codes = RowValues(np.int32)
        self._texts = TextDictionary()

    def __len__(self) -> int:
        return len(self._codes)

    def put(self, row: int, value: AttributeValue) -> None:
        assert isinstance(value, str)
        self._codes.put(row, self._texts.acquire(value))

    def drop(self, row: int) -> None:
        self._texts.release(int(self._codes.take(row)))

    def mark(self, is_found_R: NDArray[np.bool_], condition: Condition) -> None:
        match condition:
            case Exists():
                self._codes.mark(is_found_R)
            case OneOf() | StartsWith():
                wanted = self._texts.wanted(condition)
                if len(wanted):
                    self._codes.mark(
                        is_found_R, lambda codes_N: among_codes(codes_N, wanted, len(self._texts))
                    )


class TextListColumn:
    """Stores lists of texts: 9 bytes a row, 8 a word, and about 140 for each distinct word.

    The words of all lists are concatenated. Dropped lists leave gaps, which are closed when they
    make up more than half.
    """

    def __init__(self) -> None:
        self._texts = TextDictionary()
        # The position of a list's first word, times _PLACE_STEP, plus the number of words.
        self._places = RowValues(np.int64)
        self._codes_E = np.zeros(0, dtype=np.int32)  # -1 in a gap
        self._rows_E = np.zeros(0, dtype=np.int32)
        self._end = 0
        self._gap_count = 0
        self._row_count = 0  # every row is less

    def __len__(self) -> int:
        return len(self._places)

    def put(self, row: int, value: AttributeValue) -> None:
        assert isinstance(value, tuple)
        start, self._end = self._end, self._end + len(value)
        self._codes_E = grown(self._codes_E, self._end)
        self._rows_E = grown(self._rows_E, self._end)
        self._codes_E[start : self._end] = [self._texts.acquire(text) for text in value]
        self._rows_E[start : self._end] = row
        self._row_count = max(self._row_count, row + 1)
        self._places.put(row, start * _PLACE_STEP + len(value))

    def drop(self, row: int) -> None:
        start, count = divmod(int(self._places.take(row)), _PLACE_STEP)
        codes = self._codes_E[start : start + count]
        for code in codes.tolist():
            self._texts.release(code)
        codes[:] = -1
        self._gap_count += count
        if self._gap_count > max(_MIN_COMPACTED_COUNT, self._end // 2):
            self._close_gaps()

    def mark(self, is_found_R: NDArray[np.bool_], condition: Condition) -> None:
        match condition:
            case Exists():
                self._places.mark(is_found_R)
            case OneOf() | StartsWith():
                wanted = self._texts.wanted(condition)
                if len(wanted):
                    codes_E = self._codes_E[: self._end]
                    is_found_E = among_codes(codes_E, wanted, len(self._texts))
                    rows = np.take(self._rows_E, np.flatnonzero(is_found_E))
                    if self._row_count > len(is_found_R):
                        rows = rows[rows < len(is_found_R)]
                    is_found_R[rows] = True

    def _close_gaps(self) -> None:
        is_kept_E = self._codes_E[: self._end] >= 0
        kept_before_E = np.concatenate([[0], np.cumsum(is_kept_E, dtype=np.int64)])
        self._codes_E = self._codes_E[: self._end][is_kept_E]
        self._rows_E = self._rows_E[: self._end][is_kept_E]
        self._end, self._gap_count = len(self._codes_E), 0
        self._places.replace(
            lambda places_N: (
                kept_before_E[places_N // _PLACE_STEP] * _PLACE_STEP + places_N % _PLACE_STEP
            )
        )


TypedColumn: TypeAlias = NumberColumn | TextColumn | TextListColumn

assert MAX_TEXTS_COUNT < _PLACE_STEP


def _is_integer(value: Value) -> bool:
    if isinstance(value, str | bool):
        return False
    return value == math.floor(value) and _MIN_INTEGER <= value <= _MAX_INTEGER


def _is_real(value: Value) -> bool:
    # Leaves out integers that no float equals, instead of rounding them.
    return not isinstance(value, str | bool) and float(value) == value


# The values of a filter that a number of each kind can equal.
_CAN_EQUAL: dict[type, Callable[[Value], bool]] = {
    int: _is_integer,
    float: _is_real,
    bool: lambda value: isinstance(value, bool),
}


def _among(wanted: Collection[float]) -> Predicate:
    return lambda values_N: _is_among(values_N, np.array(sorted(wanted), dtype=values_N.dtype))


def _is_among(values_N: Values, wanted_W: Values) -> NDArray[np.bool_]:
    if len(wanted_W) <= MAX_COMPARED_COUNT:
        is_found_N: NDArray[np.bool_] = values_N == wanted_W[0]
        for value in wanted_W[1:]:
            is_found_N |= values_N == value
        return is_found_N
    if values_N.dtype == np.int64 and int(wanted_W[-1]) - int(wanted_W[0]) <= _MAX_TABLE_SPAN:
        return np.isin(values_N, wanted_W, kind="table")
    # A binary search for each value takes 50 ms a million; few values pass the hash table.
    is_hash_wanted = np.zeros(1 << _HASH_BITS, dtype=np.bool_)
    is_hash_wanted[_hashes(wanted_W)] = True
    candidates = np.flatnonzero(np.take(is_hash_wanted, _hashes(values_N)))
    is_found_N = np.zeros(len(values_N), dtype=np.bool_)
    is_found_N[candidates] = np.isin(values_N[candidates], wanted_W)
    return is_found_N


def _hashes(values_N: Values) -> NDArray[np.int64]:
    # Adding 0 turns -0.0 into 0.0, which is equal but has other bits.
    bits_N: NDArray[np.uint64] = (values_N + values_N.dtype.type(0)).view(np.uint64)
    hashes_N: NDArray[np.uint64] = bits_N * _HASH_FACTOR >> np.uint64(64 - _HASH_BITS)
    return hashes_N.view(np.int64)


def _integer_range(bounds: InRange) -> tuple[int, int]:
    low, high = _MIN_INTEGER, _MAX_INTEGER
    if bounds.at_least is not None:
        low = max(low, math.ceil(bounds.at_least))
    if bounds.above is not None:
        low = max(low, math.floor(bounds.above) + 1)
    if bounds.at_most is not None:
        high = min(high, math.floor(bounds.at_most))
    if bounds.below is not None:
        high = min(high, math.ceil(bounds.below) - 1)
    return low, high


def _in_range(values_N: Values, bounds: InRange) -> NDArray[np.bool_]:
    is_found_N = np.ones(len(values_N), dtype=np.bool_)
    if bounds.at_least is not None:
        is_found_N &= values_N >= bounds.at_least
    if bounds.above is not None:
        is_found_N &= values_N > bounds.above
    if bounds.at_most is not None:
        is_found_N &= values_N <= bounds.at_most
    if bounds.below is not None:
        is_found_N &= values_N < bounds.below
    return is_found_N
