"""Pads rows to a few lengths, because Triton batches only requests of equal shape."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

from tandem.errors import TextTooLong

# From this many pairs, the time per pair on a CPU stays constant.
_EFFICIENT_PAIR_COUNT = 10
# The fixed cost of one more chunk (a call, small matrix products), in tokens of padding.
_CHUNK_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Chunk:
    """Describes the rows of a call that form one request, padded to one length."""

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

    The longest come first, so that the model's instances finish at about the same time. The chunks
    of a bucket are of even size. Its remaining rows join the next longer bucket if that has room
    and the padding is cheaper than another chunk. Otherwise no row joins longer ones, because all
    rows are computed at that length: one long text must not slow down a call of many.
    """
    rows_of: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        rows_of.setdefault(bucket_of(length, buckets), []).append(row)
    chunks: list[Chunk] = []
    ascending = sorted(rows_of)
    for bucket, longer in zip_longest(ascending, ascending[1:]):
        rows = rows_of[bucket]
        over_count = len(rows) % chunk_size
        if longer is not None and over_count:
            over = rows[-over_count:]
            # The full padding, also of rows that already moved up from shorter buckets.
            padding = sum(longer - bucket_of(lengths[row], buckets) for row in over)
            room = -len(rows_of[longer]) % chunk_size
            if over_count <= room and padding <= _CHUNK_TOKENS:
                rows_of[longer] = over + rows_of[longer]
                rows = rows[:-over_count]
        chunks[:0] = [Chunk(part, bucket) for part in _even_parts(rows, chunk_size)]
    return chunks


def _even_parts(rows: list[int], most: int) -> Iterator[list[int]]:
    """Yields the rows in the fewest parts, whose sizes differ by at most one."""
    if not rows:
        return
    part_count = math.ceil(len(rows) / most)
    ends = [math.ceil(len(rows) * number / part_count) for number in range(part_count + 1)]
    for start, end in pairwise(ends):
        yield rows[start:end]


def pair_chunk_size(pair_count: int, instance_count: int, most: int) -> int:
    """Returns how many pairs each chunk of a call has, at most `most`.

    Even chunks let the model's instances share the work equally, each on its own cores. No chunk is
    so small that a pair would take longer.
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
