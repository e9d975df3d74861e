"""Lengths that texts are padded to."""

import numpy as np
import pytest

from tandem.errors import TextTooLong
from tandem.model_io.inference.buckets import (
    bucket_of,
    chunks_by_length,
    pad_texts,
    pair_chunk_size,
)
from tandem.model_io.texts.text_rules import text_length_buckets

BUCKETS = (4, 16, 64)


def test_the_smallest_fitting_bucket_is_chosen() -> None:
    assert [bucket_of(length, BUCKETS) for length in (4, 5, 64)] == [4, 16, 64]
    with pytest.raises(TextTooLong) as caught:
        bucket_of(65, BUCKETS)
    assert caught.value.metadata == {"got": "65", "limit": "64", "unit": "tokens"}


def test_rows_are_divided_by_length_and_none_is_lost() -> None:
    """A chunk has rows of one bucket, in order, up to the limit; the longest go first."""
    lengths = [3, 60, 5, 4, 16, 17, 1, 2, 9]

    chunks = chunks_by_length(lengths, BUCKETS, chunk_size=3)

    assert [(chunk.rows, chunk.padded_length) for chunk in chunks] == [
        ([1, 5], 64),
        ([2, 4, 8], 16),
        ([0, 3], 4),
        ([6, 7], 4),
    ]
    assert chunks_by_length([], BUCKETS, chunk_size=3) == []


def test_rows_over_whole_chunks_fill_up_longer_ones() -> None:
    """One row of 4 tokens with two of 16; not with one of 64, which would cost more."""
    lengths = [4, 4, 4, 16, 16, 4]

    short = chunks_by_length(lengths, BUCKETS, chunk_size=3)
    long = chunks_by_length([16, 64], BUCKETS, chunk_size=3)

    assert [(chunk.rows, chunk.padded_length) for chunk in short] == [
        ([5, 3, 4], 16),
        ([0, 1, 2], 4),
    ]
    assert [(chunk.rows, chunk.padded_length) for chunk in long] == [([1], 64), ([0], 16)]


def test_rows_do_not_climb_from_length_to_length() -> None:
    buckets = text_length_buckets(64)

    chunks = chunks_by_length(buckets, buckets, chunk_size=24)

    assert [[buckets[row] for row in chunk.rows] for chunk in chunks] == [
        [48, 64],
        [24, 32],
        [8, 12, 16],
    ]


def test_padding_is_masked() -> None:
    rows = [np.array([2, 9, 3], dtype=np.int32), np.array([2, 3], dtype=np.int32)]

    ids, mask = pad_texts(iter(rows), 4, pad_id=7)

    assert ids.tolist() == [[2, 9, 3, 7], [2, 3, 7, 7]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    assert (ids.dtype, mask.dtype) == (np.int64, np.int64)


@pytest.mark.parametrize(
    ("pair_count", "chunk_sizes"),
    [(0, []), (14, [14]), (15, [8, 7]), (200, [25] * 8)],
)
def test_two_instances_share_pairs_evenly(pair_count: int, chunk_sizes: list[int]) -> None:
    """Few pairs stay together; no chunk is larger than the model's batch."""
    size = pair_chunk_size(pair_count, instance_count=2, most=32)

    chunks = chunks_by_length([4] * pair_count, BUCKETS, size)

    assert [len(chunk.rows) for chunk in chunks] == chunk_sizes
    assert pair_chunk_size(20, instance_count=2, most=6) == 5
