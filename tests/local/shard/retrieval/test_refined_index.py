"""Tests that bytes choose which candidates to read, and never what an answer says."""

from pathlib import Path

import numpy as np
import pytest

from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.row_file import RowFile
from tests.local.shard.retrieval.test_modality_index import clustered

DIMENSION, COUNT, K = 128, 4_000, 20


def test_answers_are_those_of_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over saved rows and rows in memory; a fifth as many are read as bits alone need."""
    items_ND = clustered(COUNT, DIMENSION, seed=1).astype(np.float32)
    rows = EmbeddingRows(DIMENSION, file=RowFile(tmp_path, DIMENSION))
    index = ModalityIndex(rows)
    ids = [str(number) for number in range(COUNT)]
    rows.append(ids[:3_500], items_ND[:3_500])
    rows.save()
    rows.append(ids[3_500:], items_ND[3_500:])
    queries_QD = clustered(100, DIMENSION, seed=2).astype(np.float32)
    gathered: list[int] = []
    gather = EmbeddingRows.gather

    def counting(self: EmbeddingRows, wanted: np.ndarray) -> np.ndarray:
        gathered.append(len(wanted))
        return gather(self, wanted)

    by_type = []
    for index_type in ("IVF1,RaBitQfs,Refine(SQ8)", "IVF1,RaBitQfs"):
        index.faiss_index = FaissIndex.build(index_type, rows, COUNT)
        monkeypatch.setattr(EmbeddingRows, "gather", counting)
        by_type.append([index.search(query_D, K).hits for query_D in queries_QD])
        monkeypatch.undo()
    exact = [index.frozen_scan()(query_D, K).hits for query_D in queries_QD]

    by_bytes, by_bits = (
        np.mean([one == other for one, other in zip(found, exact, strict=True)])
        for found in by_type
    )
    assert by_bytes >= max(0.97, by_bits)
    assert np.mean(gathered[:100]) == 40
    assert np.mean(gathered[100:]) == 200
