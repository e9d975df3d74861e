"""Measures the recall of filtered searches in the index that `auto` builds."""

import numpy as np
import numpy.typing as npt
import pytest

from tandem.contract.filtering.filters import Filter, InRange, Not
from tandem.contract.search_path import SearchStrategy
from tandem.local.shard.retrieval.arrays import F32
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.index_type import IndexTuning, choose_index_types
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.upkeep.index_build import build_index
from tandem.local.shard.upkeep.recall_sample import RecallSample

ROW_COUNT = 20_000
DIMENSION = 32
QUERY_COUNT = 100
K = 20


@pytest.fixture(scope="module", name="index")
def _index() -> ModalityIndex:
    """Makes clustered items with two attributes from 0 to 1: at random, and along one direction."""
    items_ND = clustered(ROW_COUNT, seed=1)
    live = np.ones(ROW_COUNT, dtype=np.bool_)
    ids = b"".join(b"%d\0" % number for number in range(ROW_COUNT))
    index = ModalityIndex(EmbeddingRows(DIMENSION, items_ND, ids, live))
    anywhere = np.random.default_rng(2).permutation(ROW_COUNT) / ROW_COUNT
    side = items_ND[:, 0].argsort().argsort() / ROW_COUNT
    for row in range(ROW_COUNT):
        index.put_attributes(row, {"anywhere": float(anywhere[row]), "side": float(side[row])})
    rows, tuning = index.rows.frozen(), IndexTuning()
    index.faiss_index, _ = build_index(
        choose_index_types(tuning, ROW_COUNT, DIMENSION),
        RecallSample.draw(rows, EmbeddingRows(DIMENSION).frozen()),
        tuning,
    )
    return index


def clustered(count: int, seed: int) -> F32:
    """Returns unit vectors around 200 centres; the same seed gives the same centres to queries."""
    centres_CD = np.random.default_rng(0).standard_normal((200, DIMENSION))
    random = np.random.default_rng(seed)
    owners = random.integers(len(centres_CD), size=count)
    drawn_ND = centres_CD[owners] + random.standard_normal((count, DIMENSION))
    drawn_ND /= np.linalg.norm(drawn_ND, axis=1, keepdims=True)
    return drawn_ND.astype(np.float32)


def recall(index: ModalityIndex, condition: Filter, wanted: npt.NDArray[np.bool_]) -> float:
    """Returns the found share of the 20 nearest matches, over queries that are not items."""
    rows = np.flatnonzero(wanted)
    items_ND = index.rows.gather(rows)
    count = min(K, len(rows))
    found_count = 0
    for query_D in clustered(QUERY_COUNT, seed=3):
        nearest = set(rows[np.argsort(-(items_ND @ query_D), kind="stable")[:count]].tolist())
        found = {int(hit.item_id) for hit in index.search(query_D, K, condition).hits}
        assert len(found) == count
        found_count += len(found & nearest)
    return found_count / (count * QUERY_COUNT)


def wanted_by(index: ModalityIndex, name: str, share: float) -> npt.NDArray[np.bool_]:
    """Returns the rows where `name` is below the share."""
    return np.array([index.attributes[row][name] < share for row in range(ROW_COUNT)])


@pytest.mark.parametrize("name", ["anywhere", "side"])
# The strategy changes between the quick ones; the slow ones lie between them.
@pytest.mark.parametrize(
    "share",
    [
        0.001,
        pytest.param(0.01, marks=pytest.mark.slow),
        0.1,
        0.5,
        pytest.param(0.9, marks=pytest.mark.slow),
    ],
)
def test_filtered_recall_equals_unfiltered_recall(
    index: ModalityIndex, name: str, share: float
) -> None:
    """Recall is 0.98 of an exact scan, however few items match and wherever they lie."""
    wanted = wanted_by(index, name, share)

    assert recall(index, InRange(name, below=share), wanted) >= 0.98
    if share < 0.5:
        assert recall(index, Not(InRange(name, below=share)), ~wanted) >= 0.98


def test_a_filter_that_matches_half_doubles_the_search_effort(index: ModalityIndex) -> None:
    """The test above would not notice if the index were tuned to find everything anyway.

    With the effort of an unfiltered search, the 20 nearest of half of the items would be searched
    only where the 20 nearest of all items are.
    """
    assert index.faiss_index is not None
    condition, wanted = InRange("anywhere", below=0.5), wanted_by(index, "anywhere", 0.5)
    query_D = clustered(1, seed=4)[0]
    assert index.search(query_D, K, condition).path.strategy is SearchStrategy.POST_FILTER
    nprobe = index.faiss_index.parameters["nprobe"]
    try:
        index.faiss_index.tune({"nprobe": 1})
        too_little = recall(index, condition, wanted)
        index.faiss_index.tune({"nprobe": 2})
        little = recall(index, condition, wanted)
    finally:
        index.faiss_index.tune({"nprobe": nprobe})

    assert too_little < little < 0.98
