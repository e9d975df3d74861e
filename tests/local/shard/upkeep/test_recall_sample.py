"""Compares the recall of a sample with counting by hand."""

import numpy as np
import pytest

from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.exact_scan import compare_rows, scan_rows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import fetch_count
from tandem.local.shard.upkeep.recall_sample import (
    MAX_QUERY_COUNT,
    MIN_QUERY_COUNT,
    MeasuredRecall,
    RecallSample,
)
from tests.support.index_svc.unit_rows import DIMENSION, unit_rows, unit_vectors

TYPES = ["IVF64,SQ8", "IVF16,PQ4np", "HNSW8", "PQ8x4fs"]


@pytest.fixture(scope="module")
def sample(rows: EmbeddingRows) -> RecallSample:
    return RecallSample.draw(rows, unit_rows(150, 2))


def test_queries_are_of_the_other_modality(rows: EmbeddingRows) -> None:
    """If it has too few items, queries come from the items themselves."""
    others = unit_rows(MIN_QUERY_COUNT, 2)
    sample = RecallSample.draw(rows, others)
    drawn = {query.tobytes() for query in sample.queries_QD}
    assert drawn == {row.tobytes() for row in unit_vectors(MIN_QUERY_COUNT, 2)}

    own = RecallSample.draw(rows, unit_rows(MIN_QUERY_COUNT - 1, 2))
    assert len(own) == MAX_QUERY_COUNT
    live = {row.tobytes() for row in rows.gather(np.flatnonzero(rows.live))}
    assert {query.tobytes() for query in own.queries_QD} <= live


@pytest.mark.parametrize("index_type", TYPES)
def test_recall_is_the_share_of_the_truly_nearest_that_is_found(
    rows: EmbeddingRows, sample: RecallSample, index_type: str
) -> None:
    """The test counts row numbers of live rows, from scans of one query at a time."""
    index = FaissIndex.build(index_type, rows, rows.row_count)
    shares = []
    for query in sample.queries_QD:
        nearest = scan_rows(rows, query, 20)[1]
        mask = rows.live if index.takes_selector else None
        candidates, _ = index.candidates(query, fetch_count(index, 20) + 1, mask=mask)
        found = compare_rows(rows, query, candidates[rows.live[candidates]], 20)[1]
        shares.append(len(set(found) & set(nearest)) / 20)

    measured = sample.measure(index)

    assert measured.percent == pytest.approx(100 * np.mean(shares))
    assert measured.error_percent == pytest.approx(100 * np.std(shares, ddof=1) / 150**0.5)
    assert 5 < measured.percent < 99


def test_an_exhaustive_search_has_full_recall() -> None:
    """The sample sums similarities in another order than a comparison."""
    random = np.random.default_rng(8)
    rows, others = EmbeddingRows(384), EmbeddingRows(384)
    for drawn, count in ((rows, 16_384), (others, 1_000)):
        vectors = random.standard_normal((count, 384), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        drawn.append([str(number) for number in range(count)], vectors)
    sample = RecallSample.draw(rows, others)

    measured = sample.measure(FaissIndex.build("IVF1,Flat", rows, rows.row_count))

    assert measured == MeasuredRecall(100.0, 0.0)


def test_a_query_does_not_count_as_its_own_finding() -> None:
    """Each row finds itself in its own list; its nearest others are in their own lists."""
    rows = unit_rows(400, 3)
    sample = RecallSample.draw(rows, EmbeddingRows(DIMENSION))
    index = FaissIndex.build("IVF200,Flat", rows, rows.row_count)
    found_counts = []
    for query in sample.queries_QD:
        nearest = scan_rows(rows, query, 21)[1][1:]
        candidates, _ = index.candidates(query, 22)
        found_counts.append(len(set(candidates) & set(nearest)))

    measured = sample.measure(index)

    assert measured.percent == pytest.approx(100 * np.mean(found_counts) / 20)
    # Its own row would be one of twenty.
    assert measured.percent < 100 * (np.mean(found_counts) + 1) / 20 - 3


def test_either_of_equal_embeddings_is_right() -> None:
    """Any twenty of thirty rows with one embedding are the nearest."""
    rows = EmbeddingRows(DIMENSION)
    vectors = np.concatenate([np.repeat(unit_vectors(20, 4), 30, axis=0), unit_vectors(200, 5)])
    rows.append([str(number) for number in range(len(vectors))], vectors)
    own_rows = np.full(20, -1, dtype=np.int64)
    sample = RecallSample(rows, unit_vectors(20, 4), own_rows)

    assert sample.measure(FaissIndex.build("SQ8", rows, rows.row_count)).percent == 100


def test_only_clear_misses_are_measured(
    rows: EmbeddingRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred queries distinguish 5 % from 98 %; only all queries show a reached target.

    A lucky hundred of a million items found 0.99 where all found 0.976.
    """
    sample = RecallSample.draw(rows, unit_rows(1_000, 7))
    index = FaissIndex.build("IVF64,SQ8", rows, rows.row_count)
    asked_count = 0
    candidates = FaissIndex.candidates

    def count_candidates(*arguments: object, **options: object) -> object:
        nonlocal asked_count
        asked_count += 1
        return candidates(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FaissIndex, "candidates", count_candidates)

    assert not sample.measure(index, 0.98).reaches(0.98)
    assert asked_count == 100
    percent = sample.measure(index).percent
    assert asked_count == 1_100
    for target in (percent / 100, 0.01):
        asked_count = 0
        assert sample.measure(index, target).percent == percent
        assert asked_count == 1_000


@pytest.mark.parametrize(
    ("measured", "is_reached"),
    [
        (MeasuredRecall(98.0, 0.0), True),
        (MeasuredRecall(98.5, 0.25), True),
        (MeasuredRecall(98.5, 0.26), False),
        (MeasuredRecall(97.9, 0.0), False),
    ],
)
def test_a_target_is_reached_within_two_standard_errors(
    measured: MeasuredRecall, is_reached: bool
) -> None:
    """Another sample would hardly decide otherwise."""
    assert measured.reaches(0.98) is is_reached
