"""Checks that embeddings have unit length, as every similarity assumes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandem.errors import EmbeddingInvalid

# Rounding to float32 changes a length by about 1e-7; float16 would change it by 1e-3.
UNIT_LENGTH_TOLERANCE = 1e-3


def check_unit_lengths(embeddings_ND: NDArray[np.float32] | Sequence[NDArray[np.float32]]) -> None:
    """Raises EmbeddingInvalid unless all values are finite and each embedding has unit length."""
    # All at once: NumPy releases the interpreter lock for each conversion, so that one by one four
    # threads took 2.7 times as long as one thread. float64, so that finite values near float32's
    # limit do not overflow when squared.
    lengths_N = np.sqrt(np.square(embeddings_ND, dtype=np.float64).sum(axis=1))
    for length in lengths_N[~(np.abs(lengths_N - 1.0) <= UNIT_LENGTH_TOLERANCE)]:
        if not np.isfinite(length):
            raise EmbeddingInvalid(why="it contains NaN or infinity")
        raise EmbeddingInvalid(why=f"its length is {length:.6g} instead of 1")
