"""Embeddings have unit length within a tolerance, or are refused with the cause."""

import numpy as np
import pytest

from tandem.errors import EmbeddingInvalid
from tandem.stages.unit_length import check_unit_lengths

GOOD = [0.6, 0.8]


@pytest.mark.parametrize(
    ("embedding", "why"),
    [
        ([np.nan, 1.0], "NaN or infinity"),
        ([np.inf, 1.0], "NaN or infinity"),
        ([0.0, 0.0], "length is 0 instead"),
        ([3e38, 3e38], "length is 4.24264e[+]38 instead"),
        ([1.0, 0.05], "length is 1.00125 instead"),
        (np.array(GOOD, "<f4").view(">f4").astype(np.float32), "length is"),
    ],
)
def test_a_bad_embedding_is_refused_at_any_place(embedding: list[float], why: str) -> None:
    for place in range(3):
        embeddings = [GOOD, GOOD]
        embeddings.insert(place, embedding)
        with pytest.raises(EmbeddingInvalid, match=why):
            check_unit_lengths(np.array(embeddings, np.float32))


def test_embeddings_within_a_thousandth_of_unit_length_pass() -> None:
    check_unit_lengths(np.array([GOOD, [0.0, 1.0009]], np.float32))
