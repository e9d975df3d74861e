"""Grows numpy arrays."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)


def grown(array_N: NDArray[_Scalar], count: int) -> NDArray[_Scalar]:
    """Returns the array, or a copy padded with zeros if it has fewer than `count` elements.

    It grows by half, so that growing one by one copies each element only a few times.
    """
    if count <= len(array_N):
        return array_N
    larger_N = np.zeros(max(count, len(array_N) * 3 // 2, 16), dtype=array_N.dtype)
    larger_N[: len(array_N)] = array_N
    return larger_N
