"""Stores one value of one numpy type for some of the rows.

Shapes: R rows, N rows that have a value.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem.local.shard.attributes.growing_array import grown

Values: TypeAlias = NDArray[Any]
Predicate: TypeAlias = Callable[[Values], NDArray[np.bool_]]

# A value in the array takes 2 to 9 bytes a row, one in the dictionary about 100.
_DENSE_FROM_SHARE = 16
_SPARSE_FROM_SHARE = 32


class RowValues:
    """Stores values by row, in an array if many rows have one, in a dictionary if few do.

    So memory is proportional to the number of values, not to rows times columns, whatever names
    callers use.
    """

    def __init__(self, dtype: type[np.generic]) -> None:
        """Starts without values; later ones have this type."""
        self._dtype = dtype
        self._sparse: dict[int, int | float] | None = {}
        self._sparse_arrays: tuple[NDArray[np.int64], Values] | None = None
        self._values_R: Values = np.zeros(0, dtype=dtype)
        self._is_present_R = np.zeros(0, dtype=np.bool_)
        self._row_count = 0
        self._count = 0

    def __len__(self) -> int:
        """Returns how many rows have a value."""
        return self._count

    def put(self, row: int, value: int | float) -> None:
        """Sets the value of a row that has none."""
        self._count += 1
        self._row_count = max(self._row_count, row + 1)
        if self._sparse is None and self._row_count > self._count * _SPARSE_FROM_SHARE:
            self._become_sparse()
        if self._sparse is not None:
            self._sparse[row] = value
            self._sparse_arrays = None
            if self._count * _DENSE_FROM_SHARE >= self._row_count:
                self._become_dense()
            return
        self._values_R = grown(self._values_R, row + 1)
        self._is_present_R = grown(self._is_present_R, row + 1)
        self._values_R[row] = value
        self._is_present_R[row] = True

    def take(self, row: int) -> int | float:
        """Removes a row's value and returns it."""
        self._count -= 1
        if self._sparse is not None:
            self._sparse_arrays = None
            return self._sparse.pop(row)
        self._is_present_R[row] = False
        value: int | float = self._values_R[row].item()
        return value

    def mark(self, is_found_R: NDArray[np.bool_], predicate: Predicate | None = None) -> None:
        """Sets True in the rows whose value fulfils the predicate; None accepts all values."""
        if self._sparse is not None:
            rows_N, values_N = self._arrays()
            found_N = rows_N if predicate is None else rows_N[predicate(values_N)]
            is_found_R[found_N[found_N < len(is_found_R)]] = True
            return
        row_count = min(self._row_count, len(is_found_R))
        is_held_R = self._is_present_R[:row_count]
        if predicate is not None:
            is_held_R = is_held_R & predicate(self._values_R[:row_count])
        is_found_R[:row_count] |= is_held_R

    def replace(self, replaced: Callable[[Values], Values]) -> None:
        """Replaces all values by `replaced(values)`."""
        if self._sparse is not None:
            rows_N, values_N = self._arrays()
            self._sparse = dict(zip(rows_N.tolist(), replaced(values_N).tolist(), strict=True))
            self._sparse_arrays = None
        else:
            present_N = np.flatnonzero(self._is_present_R)
            self._values_R[present_N] = replaced(self._values_R[present_N])

    def _arrays(self) -> tuple[NDArray[np.int64], Values]:
        # Made by the first search after a change. Parallel searches may both make them, from the
        # same values.
        arrays = self._sparse_arrays
        if arrays is None:
            assert self._sparse is not None
            rows_N = np.fromiter(self._sparse.keys(), dtype=np.int64, count=len(self._sparse))
            values_N = np.fromiter(self._sparse.values(), self._dtype, count=len(self._sparse))
            self._sparse_arrays = arrays = (rows_N, values_N)
        return arrays

    def _become_dense(self) -> None:
        rows_N, values_N = self._arrays()
        self._values_R = np.zeros(self._row_count, dtype=self._dtype)
        self._is_present_R = np.zeros(self._row_count, dtype=np.bool_)
        self._values_R[rows_N] = values_N
        self._is_present_R[rows_N] = True
        self._sparse = self._sparse_arrays = None

    def _become_sparse(self) -> None:
        present_N = np.flatnonzero(self._is_present_R)
        values_N = self._values_R[present_N]
        self._sparse = dict(zip(present_N.tolist(), values_N.tolist(), strict=True))
        self._values_R = np.zeros(0, dtype=self._dtype)
        self._is_present_R = np.zeros(0, dtype=np.bool_)
