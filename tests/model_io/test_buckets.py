"""Lengths that texts are padded to."""

import numpy as np
import pytest

from tandem.errors import TextTooLong
from tandem.model_io.buckets import bucket_of, pad_texts

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
