"""Holds rows as one byte a value and a scale each, to choose which few are worth a read in full.

Of 200 candidates the best 40 by bytes have the 20 that float32 puts first, in nearly every search.

Shapes: R rows, C candidates, d values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tandem.local.shard.retrieval.arrays import F32, I64

I8 = npt.NDArray[np.int8]

_MAX_BYTE = 127


class ByteRows:
    """Appends rows; only by their order, never by their values, they reach an answer."""

    def __init__(self, dimension: int) -> None:
        """Starts without rows; each takes d + 4 bytes."""
        self._bytes_RD: I8 = np.empty((0, dimension), np.int8)
        self._scales_R: F32 = np.empty(0, np.float32)

    def append(self, bytes_ND: I8, scales_N: F32) -> None:
        """Adds the next rows; no reader may be inside."""
        start, stop = len(self._scales_R), len(self._scales_R) + len(scales_N)
        # Moves pages instead of copying them, so the memory is never needed twice.
        self._bytes_RD.resize((stop, bytes_ND.shape[1]), refcheck=False)
        self._scales_R.resize(stop, refcheck=False)
        self._bytes_RD[start:], self._scales_R[start:] = bytes_ND, scales_N

    def nearest(self, query_D: F32, candidates: I64, count: int) -> I64:
        """Returns about the `count` nearest candidates; rows that are not here all stay."""
        here = candidates[candidates < len(self._scales_R)]
        if len(here) <= count:
            return candidates
        similarities_C = (self._bytes_RD[here].astype(np.float32) @ query_D) * self._scales_R[here]
        best = here[np.argpartition(-similarities_C, count)[:count]]
        return np.concatenate([best, candidates[candidates >= len(self._scales_R)]])


def as_bytes(embeddings_ND: F32) -> tuple[I8, F32]:
    """Returns rows as one byte a value, and what to multiply each row by."""
    scales_N = np.maximum(np.abs(embeddings_ND).max(axis=1), 1e-30) / _MAX_BYTE
    return np.rint(embeddings_ND / scales_N[:, np.newaxis]).astype(np.int8), scales_N
