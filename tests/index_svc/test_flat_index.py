"""The flat index equals a brute-force search that is short enough to be seen right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_svc.flat_index import FlatIndex, Hit
from tests.corpus.made_items import unit_vector

DIMENSION = 4
# Few ids and few embeddings, so that replacements and ties are the rule. Components of +-0.5 have
# products and sums that float32 holds exactly: the reference's ties are FAISS's ties.
ITEM_IDS = ["a", "b", "c", "ä", "z", "\N{SNOWMAN}", "\N{DOG FACE}", "10", "9"]
CORNERS = [
    np.array([0.5 if bits >> place & 1 else -0.5 for place in range(4)], dtype=np.float32)
    for bits in range(16)
]

corners = st.sampled_from(CORNERS)
upserts = st.dictionaries(st.sampled_from(ITEM_IDS), corners, min_size=1)
deletes = st.lists(st.sampled_from(ITEM_IDS), unique=True)


def brute_force(items: dict[str, np.ndarray], query: np.ndarray, k: int) -> list[Hit]:
    """Returns the k nearest by a full sort; smaller ids, as UTF-8 bytes, first among equals."""
    hits = [Hit(item_id, float(embedding @ query)) for item_id, embedding in items.items()]
    return sorted(hits, key=lambda hit: (-hit.similarity, hit.item_id.encode()))[:k]


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(upserts | deletes, max_size=12),
    query=corners,
    k=st.integers(min_value=1, max_value=12),
)
def test_search_equals_brute_force_after_any_changes(
    changes: list[dict[str, np.ndarray] | list[str]], query: np.ndarray, k: int
) -> None:
    """After any upserts, replacements and deletes: the same hits in the same order."""
    index, items = FlatIndex(DIMENSION), dict[str, np.ndarray]()
    for change in changes:
        if isinstance(change, dict):
            index.upsert(list(change), np.stack(list(change.values())))
            items |= change
        else:
            index.delete(change)
            items = {item_id: items[item_id] for item_id in items if item_id not in change}

    hits = index.search(query, k)

    assert hits == brute_force(items, query, k)
    assert len(hits) == min(k, len(items))
    assert len(index) == len(items)


@pytest.mark.parametrize("dimension", [3, 64, 255])
@pytest.mark.parametrize("k", [1, 99, 100, 1000])
def test_search_equals_brute_force_on_many_real_valued_items(dimension: int, k: int) -> None:
    """Over 2,000 items, every embedding held twice, the same hits come in the same order."""
    rng = np.random.default_rng(dimension)
    half_ND = rng.standard_normal((1000, dimension)).astype(np.float32)
    half_ND /= np.linalg.norm(half_ND, axis=1, keepdims=True)
    embeddings_ND = np.concatenate([half_ND, half_ND])
    item_ids = [f"item {number}" for number in rng.permutation(2000)]
    index = FlatIndex(dimension)
    index.upsert(item_ids, embeddings_ND)
    query = unit_vector(1, dimension)

    hits = index.search(query, k)

    exact = half_ND.astype(np.float64) @ query.astype(np.float64)
    pairs = [sorted((item_ids[row], item_ids[row + 1000])) for row in np.argsort(-exact)]
    assert [hit.item_id for hit in hits] == [item_id for pair in pairs for item_id in pair][:k]
    expected = np.repeat(np.sort(exact)[::-1], 2)[:k]
    np.testing.assert_allclose([hit.similarity for hit in hits], expected, atol=1e-6)


def test_ties_that_do_not_fit_are_kept_by_smaller_id() -> None:
    """Where 500 items are level and 3 are wanted, those of the 3 smallest ids come."""
    index = FlatIndex(DIMENSION)
    item_ids = [f"{number:03}" for number in reversed(range(500))]
    index.upsert(item_ids, np.tile(CORNERS[0], (500, 1)))

    hits = index.search(CORNERS[0], 3)

    assert hits == [Hit("000", 1.0), Hit("001", 1.0), Hit("002", 1.0)]


def test_an_empty_index_finds_nothing() -> None:
    """No items, before the first and after the last is deleted, give no hits and no padding."""
    index = FlatIndex(DIMENSION)
    assert index.search(CORNERS[0], 5) == []

    index.upsert(["a"], CORNERS[0][np.newaxis])
    index.delete(["a", "nobody"])

    assert index.search(CORNERS[0], 5) == []
