"""Padding to a few lengths: Triton batches only requests of equal shape."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.errors import TextTooLong

# Pairs from which on a CPU takes as long for each, however many more there are.
_EFFICIENT_PAIR_COUNT = 10


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a call that go to the model together, padded to one length."""

    rows: list[int]
    padded_length: int


def bucket_of(length: int, buckets: Sequence[int]) -> int:
    """Returns the smallest of the ascending `buckets` that holds `length`; raises TextTooLong."""
    for bucket in buckets:
        if length <= bucket:
            return bucket
    raise TextTooLong(got=length, limit=buckets[-1], unit="tokens")


def chunks_by_length(
    lengths: Sequence[int], buckets: Sequence[int], chunk_size: int
) -> list[Chunk]:
    """Divides the rows of these lengths into chunks of one bucket each, at most `chunk_size` long.

    A row never goes with longer ones, because all of them would be computed at that length: a call
    of many texts must not become slower by one long one among them.
    """
    rows_of: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        rows_of.setdefault(bucket_of(length, buckets), []).append(row)
    return [
        Chunk(rows[start : start + chunk_size], bucket)
        for bucket, rows in sorted(rows_of.items())
        for start in range(0, len(rows), chunk_size)
    ]


def pair_chunk_size(pair_count: int, instance_count: int, most: int) -> int:
    """Returns into chunks of how many pairs a call is divided, at most `most`.

    So that the model's instances share its work, each on cores of its own: as many even chunks for
    one as for the other, but none that would take longer for a pair than a large one.
    """
    parts = min((pair_count + _EFFICIENT_PAIR_COUNT // 2) // _EFFICIENT_PAIR_COUNT, instance_count)
    parts = max(parts, math.ceil(pair_count / most), 1)
    if parts > 1:
        parts = math.ceil(parts / instance_count) * instance_count
    return max(math.ceil(pair_count / parts), 1)


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
