"""Maps values to small codes, and conditions on texts to the codes they match.

Shapes: C codes handed out, N codes in a column, K words of a key.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.contract.filtering.filters import OneOf, StartsWith
from tandem.local.shard.attributes.growing_array import grown

MAX_COMPARED_COUNT = 4
"""Up to so many values, comparing all with each is faster than looking each up."""

_WORD_BYTES = 8
_WORD_COUNT = 4
_KEY_BYTES = _WORD_BYTES * _WORD_COUNT
_LAST_WORD = np.uint64(2**64 - 1)

_Value = TypeVar("_Value", bound=Hashable)


class Dictionary(Generic[_Value]):
    """Assigns each distinct value a code from 0, while it is in use."""

    def __init__(self) -> None:
        self._codes: dict[_Value, int] = {}
        self._values: list[_Value | None] = []
        self._use_counts: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """Returns a bound above every code; free codes count."""
        return len(self._values)

    def acquire(self, value: _Value) -> int:
        """Returns the value's code and adds one use."""
        code = self._codes.get(value)
        if code is None:
            code = self._add(value)
        self._use_counts[code] += 1
        return code

    def release(self, code: int) -> None:
        """Removes one use; after the last the value is forgotten and its code is free."""
        self._use_counts[code] -= 1
        if not self._use_counts[code]:
            del self._codes[self[code]]
            self._values[code] = None
            self._free.append(code)

    def __getitem__(self, code: int) -> _Value:
        value = self._values[code]
        if value is None:
            raise KeyError(code)
        return value

    def _add(self, value: _Value) -> int:
        if self._free:
            code = self._free.pop()
            self._values[code] = value
        else:
            code = len(self._values)
            self._values.append(value)
            self._use_counts.append(0)
        self._codes[value] = code
        return code


class TextDictionary(Dictionary[str]):
    """Finds the codes of texts, also by prefix."""

    def __init__(self) -> None:
        super().__init__()
        # A text's first bytes as big-endian numbers, which sort as the texts do, and whether it is
        # in use.
        self._keys_KC = [np.zeros(0, dtype=np.uint64) for _ in range(_WORD_COUNT)]
        self._is_used_C = np.zeros(0, dtype=np.bool_)

    def release(self, code: int) -> None:
        super().release(code)
        self._is_used_C[code] = self._use_counts[code] > 0

    def wanted(self, condition: OneOf | StartsWith) -> NDArray[np.int64]:
        """Returns the codes of the texts in use that match the condition."""
        if isinstance(condition, StartsWith):
            return self._with_prefix(condition.prefix)
        texts = {value for value in condition.values if isinstance(value, str)}
        codes = [self._codes[text] for text in texts if text in self._codes]
        return np.array(codes, dtype=np.int64)

    def _with_prefix(self, prefix: str) -> NDArray[np.int64]:
        start = prefix.encode()
        found = np.flatnonzero(self._is_used_C[: len(self)])
        for keys_C, first, last in zip(
            self._keys_KC, _words(start, b"\0"), _words(start, b"\xff"), strict=True
        ):
            if first == 0 and last == _LAST_WORD:
                break  # the prefix ended before
            keys = keys_C[found]
            found = found[(keys >= first) & (keys <= last)]
        if len(start) <= _KEY_BYTES and b"\0" not in start:
            return found
        # The prefix is longer than the keys, or has a NUL, which may be a shorter text's padding.
        return found[[self[code].startswith(prefix) for code in found.tolist()]]

    def _add(self, value: str) -> int:
        code = super()._add(value)
        for place, word in enumerate(_words(value.encode(), b"\0")):
            self._keys_KC[place] = grown(self._keys_KC[place], code + 1)
            self._keys_KC[place][code] = word
        self._is_used_C = grown(self._is_used_C, code + 1)
        self._is_used_C[code] = True
        return code


def _words(text: bytes, filler: bytes) -> list[np.uint64]:
    key = text[:_KEY_BYTES].ljust(_KEY_BYTES, filler)
    starts = range(0, _KEY_BYTES, _WORD_BYTES)
    return [np.uint64(int.from_bytes(key[start : start + _WORD_BYTES], "big")) for start in starts]


def among_codes(
    codes_N: NDArray[np.int32], wanted: NDArray[np.int64], code_count: int
) -> NDArray[np.bool_]:
    """Returns for each code whether it is among the wanted ones, bool [N]; code -1 never is."""
    if len(wanted) <= MAX_COMPARED_COUNT:
        is_found_N = np.zeros(len(codes_N), dtype=np.bool_)
        for code in wanted.tolist():
            is_found_N |= codes_N == code
        return is_found_N
    is_wanted_C = np.zeros(code_count + 1, dtype=np.bool_)  # one after the last, for -1
    is_wanted_C[wanted] = True
    # "wrap" maps -1 to the last element and skips the check of bounds.
    return np.take(is_wanted_C, codes_N, mode="wrap")
