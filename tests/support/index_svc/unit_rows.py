"""Makes unit vectors of 16 dimensions without clusters, which no index finds easily."""

import numpy as np

from tandem.local.shard.retrieval.arrays import F32
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows

DIMENSION = 16


def unit_vectors(count: int, seed: int) -> F32:
    """Returns `count` vectors, [count, 16]."""
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def unit_rows(count: int, seed: int) -> EmbeddingRows:
    """Returns `count` live rows."""
    rows = EmbeddingRows(DIMENSION)
    rows.append([f"{seed}-{number}" for number in range(count)], unit_vectors(count, seed))
    return rows
