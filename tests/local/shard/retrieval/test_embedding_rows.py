"""Tests that rows keep their numbers over blocks of any length."""

import numpy as np

from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows


def test_few_and_many_rows_are_gathered_equally_over_blocks() -> None:
    """The first block is as long as the rows that were read from a file."""
    embeddings_ND = np.arange(30, dtype=np.float32).reshape(15, 2)
    rows = EmbeddingRows(2, embeddings_ND[:5], [f"read-{row}" for row in range(5)])
    rows.append([f"new-{row}" for row in range(10)], embeddings_ND[5:])
    few, many = np.array([14, 0, 4, 5, 4]), np.random.default_rng(0).permutation(15)

    assert np.array_equal(rows.gather(few), embeddings_ND[few])
    assert np.array_equal(rows.gather(many), embeddings_ND[many])
