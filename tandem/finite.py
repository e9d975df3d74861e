"""Whether there is NaN or infinity among many values."""

import numpy as np
from numpy.typing import NDArray

# A float16 without its sign is a number that grows with these bits, up to infinity; NaNs follow.
_WITHOUT_SIGN = np.uint16(0x7FFF)
_INFINITY = np.uint16(0x7C00)


def are_finite(values: NDArray[np.generic]) -> bool:
    """Returns whether every value is a number, of an array of any shape.

    NumPy makes a float32 of each float16 to tell: 66 us for an image's 49 tokens of 192, which a
    rerank asks of each candidate. The bits tell in 10.
    """
    if values.dtype != np.float16:
        return bool(np.isfinite(values).all())
    bits = np.ascontiguousarray(values).view(np.uint16)
    return bits.size == 0 or bool((bits & _WITHOUT_SIGN).max() < _INFINITY)
