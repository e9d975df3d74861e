"""Limits FAISS to one thread, as index_svc does; several wait for one another on shared cores."""

import faiss
import pytest

from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tests.support.index_svc.unit_rows import unit_rows

faiss.omp_set_num_threads(1)


@pytest.fixture(scope="session")
def rows() -> EmbeddingRows:
    """4,000 rows, a tenth of them dead; not to be changed."""
    rows = unit_rows(4_000, 1)
    rows.kill([f"1-{number}" for number in range(400)])
    return rows
