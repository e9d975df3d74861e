"""Lengths that texts are padded to."""

import numpy as np
import pytest

from tandem.errors import TextTooLong
from tandem.model_io.buckets import bucket_of, chunks_by_length, pad_texts, pair_chunk_size

BUCKETS = (4, 16, 64)


@pytest.mark.parametrize(
    ("length", "bucket"), [(1, 4), (4, 4), (5, 16), (16, 16), (17, 64), (64, 64)]
)
def test_the_smallest_that_holds_it(length: int, bucket: int) -> None:
    """A length goes into the smallest bucket that is not shorter."""
    assert bucket_of(length, BUCKETS) == bucket


def test_what_no_bucket_holds_is_refused() -> None:
    """A length over the last bucket is a text that is too long."""
    with pytest.raises(TextTooLong) as caught:
        bucket_of(65, BUCKETS)
    assert caught.value.metadata == {"got": "65", "limit": "64", "unit": "tokens"}


def test_padding_is_masked() -> None:
    """Rows start at the left; what is added has the padding's id and mask 0."""
    rows = [np.array([2, 9, 3], dtype=np.int32), np.array([2, 3], dtype=np.int32)]

    ids, mask = pad_texts(iter(rows), 4, pad_id=7)

    assert ids.tolist() == [[2, 9, 3, 7], [2, 3, 7, 7]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    assert (ids.dtype, mask.dtype) == (np.int64, np.int64)


@pytest.mark.parametrize(
    ("pair_count", "chunk_sizes"),
    [(1, [1]), (14, [14]), (15, [8, 7]), (20, [10, 10]), (64, [32, 32]), (200, [32] * 6 + [8])],
)
def test_two_instances_share_pairs_evenly(pair_count: int, chunk_sizes: list[int]) -> None:
    """Few pairs stay together; no chunk is larger than the model's batch."""
    size = pair_chunk_size(pair_count, instance_count=2, most=32)

    chunks = chunks_by_length([4] * pair_count, BUCKETS, size)

    assert [len(chunk.rows) for chunk in chunks] == chunk_sizes


def test_no_pairs_are_no_chunks() -> None:
    """A size is still one that a range can step by."""
    assert pair_chunk_size(0, instance_count=2, most=32) == 1
