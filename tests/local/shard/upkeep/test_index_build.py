"""Tests that the least effort is chosen, and that its recall holds."""

import pytest

from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.upkeep.index_build import tune_for_recall
from tandem.local.shard.upkeep.recall_sample import RecallSample
from tests.support.index_svc.unit_rows import unit_rows


@pytest.mark.parametrize(("index_type", "name"), [("IVF64,SQ8", "nprobe"), ("HNSW8", "efSearch")])
def test_the_effort_is_the_least_that_reaches_the_recall(
    rows: EmbeddingRows, index_type: str, name: str
) -> None:
    """An eighth of the next power of two less misses the target."""
    index = FaissIndex.build(index_type, rows, rows.row_count)
    sample = RecallSample.draw(rows, unit_rows(500, 2))

    reached = tune_for_recall(index, sample, 0.9)

    assert reached.reaches(0.9)
    assert sample.measure(index, 0.9) == reached
    effort = index.parameters[name]
    # The gap between two powers of two is halved twice.
    next_power = 1 << (int(effort) - 1).bit_length()
    index.tune({name: effort - next_power // 8})
    assert not sample.measure(index, 0.9).reaches(0.9)


def test_the_target_is_reached_for_queries_outside_the_sample(rows: EmbeddingRows) -> None:
    """The least effort that a sample favours is often too little for other queries."""
    index = FaissIndex.build("IVF64,SQ8", rows, rows.row_count)
    others = RecallSample.draw(rows, unit_rows(500, 1_000))

    held_count = 0
    for seed in range(10):
        sample = RecallSample.draw(rows, unit_rows(100, 2_000 + seed))
        for target in (0.8, 0.92, 0.97):
            tune_for_recall(index, sample, target)
            held_count += others.measure(index).percent >= 100 * target

    assert held_count >= 27


def test_an_unreachable_target_takes_the_maximum(rows: EmbeddingRows) -> None:
    """PQ of two parts searches every list."""
    index = FaissIndex.build("IVF16,PQ2np", rows, rows.row_count)

    measured = tune_for_recall(index, RecallSample.draw(rows, unit_rows(100, 2)), 1.0)

    assert index.parameters == {"nprobe": 16}
    assert 0 < measured.percent < 100


def test_a_type_without_effort_is_measured(rows: EmbeddingRows) -> None:
    index = FaissIndex.build("PQ8x4fs", rows, rows.row_count)
    sample = RecallSample.draw(rows, unit_rows(100, 2))

    assert tune_for_recall(index, sample, 0.5) == sample.measure(index)
    assert index.parameters == {}
