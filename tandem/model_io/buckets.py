"""Padding to a few lengths: Triton batches only requests of equal shape."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem.errors import TextTooLong


def bucket_of(length: int, buckets: Sequence[int]) -> int:
    """Returns the smallest of the ascending `buckets` that holds `length`; raises TextTooLong."""
    for bucket in buckets:
        if length <= bucket:
            return bucket
    raise TextTooLong(got=length, limit=buckets[-1], unit="tokens")


def pad_texts(
    rows: Iterable[NDArray[np.int32]], length: int, pad_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns ids and mask, int64 [B, length] each; no row may be longer."""
    rows = list(rows)
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), length), dtype=np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return ids, mask
