"""Compares searches of every index type with a brute force short enough to be seen right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.contract.content import Modality
from tandem.contract.filtering.filters import Filter, InRange, Not, OneOf
from tandem.contract.search_path import SearchStrategy
from tandem.local.item_store.item_store import StoredEmbedding
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.stages.shard_answer import RowHit
from tests.support.grid import sampled
from tests.support.item_store.made_items import unit_vector

DIMENSION = 4
# Few ids and few embeddings, so that replacements and ties are the rule. Components of +-0.5 have
# products and sums that float32 holds exactly: the reference's ties are FAISS's ties.
ITEM_IDS = ["a", "b", "c", "ä", "z", "\N{SNOWMAN}", "\N{DOG FACE}", "10", "9"]
CORNERS = [
    np.array([0.5 if bits >> place & 1 else -0.5 for place in range(4)], dtype=np.float32)
    for bits in range(16)
]
# Types whose codes are exact, and those that take a selector or none, with lists or a graph.
TYPES = [
    "IVF2,Flat", "HNSW4", "NSG16", "IVF2,SQ8", "SQ8", "PQ4np", "IVF2,PQ4np", "PQ4x4fs",
    "IVF2,RaBitQfs",
]  # fmt: skip
# Of 4 bits for two values, and of a graph of few links.
COARSE_TYPES = {"PQ4x4fs": 0.9, "HNSW4": 0.9}
EXACT_TYPES = ["Flat", "IVF2,Flat", "IVF2,SQ8", "SQ8"]

corners = st.sampled_from(CORNERS)
upserts = st.dictionaries(st.sampled_from(ITEM_IDS), corners, min_size=1)
deletes = st.lists(st.sampled_from(ITEM_IDS), unique=True)


def image(item_id: str, embedding: np.ndarray, **attributes: str | int) -> StoredEmbedding:
    return StoredEmbedding(item_id, Modality.IMAGE, embedding, attributes)


def index_of(dimension: int = DIMENSION) -> ModalityIndex:
    return ModalityIndex(EmbeddingRows(dimension))


def many(count: int, dimension: int, seed: int = 0) -> tuple[ModalityIndex, np.ndarray]:
    """Returns an index of items "0", "1" ... with `number` and `parity`, and their embeddings."""
    rng = np.random.default_rng(seed)
    embeddings_ND = rng.standard_normal((count, dimension)).astype(np.float32)
    embeddings_ND /= np.linalg.norm(embeddings_ND, axis=1, keepdims=True)
    index = index_of(dimension)
    index.upsert(
        [
            image(str(number), embedding, number=number, parity="odd" if number % 2 else "even")
            for number, embedding in enumerate(embeddings_ND)
        ]
    )
    return index, embeddings_ND


def clustered(count: int, dimension: int, seed: int) -> np.ndarray:
    """Returns unit vectors around 60 centres, as real embeddings are; queries are drawn alike."""
    centres_CD = np.random.default_rng(0).standard_normal((60, dimension))
    random = np.random.default_rng(seed)
    owners = random.integers(len(centres_CD), size=count)
    drawn_ND = centres_CD[owners] + random.standard_normal((count, dimension))
    drawn_ND /= np.linalg.norm(drawn_ND, axis=1, keepdims=True)
    return drawn_ND.astype(np.float32)


def brute_force(items: dict[str, np.ndarray], query: np.ndarray, k: int) -> list[RowHit]:
    """Returns the k nearest by a full sort; smaller ids, as UTF-8 bytes, first among equals."""
    hits = [RowHit(item_id, float(embedding @ query)) for item_id, embedding in items.items()]
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
    """The same hits come in the same order after any upserts, replacements and deletes."""
    index, items = index_of(), dict[str, np.ndarray]()
    for change in changes:
        if isinstance(change, dict):
            index.upsert([image(*entry) for entry in change.items()])
            items |= change
        else:
            index.delete(change)
            items = {item_id: items[item_id] for item_id in items if item_id not in change}

    hits = index.search(query, k).hits

    assert hits == brute_force(items, query, k)
    assert len(hits) == min(k, len(items))
    assert len(index) == len(items)


@pytest.mark.parametrize("dimension", sampled([3, 64, 255]))
@pytest.mark.parametrize("k", sampled([1, 99, 100, 1000], fault=lambda k: k >= 100))
def test_search_equals_brute_force_on_many_real_valued_items(dimension: int, k: int) -> None:
    """2,000 items hold every embedding twice."""
    rng = np.random.default_rng(dimension)
    half_ND = rng.standard_normal((1000, dimension)).astype(np.float32)
    half_ND /= np.linalg.norm(half_ND, axis=1, keepdims=True)
    embeddings_ND = np.concatenate([half_ND, half_ND])
    item_ids = [f"item {number}" for number in rng.permutation(2000)]
    index = index_of(dimension)
    index.upsert([image(*entry) for entry in zip(item_ids, embeddings_ND, strict=True)])
    query = unit_vector(1, dimension)

    hits = index.search(query, k).hits

    exact = half_ND.astype(np.float64) @ query.astype(np.float64)
    pairs = [sorted((item_ids[row], item_ids[row + 1000])) for row in np.argsort(-exact)]
    assert [hit.item_id for hit in hits] == [item_id for pair in pairs for item_id in pair][:k]
    expected = np.repeat(np.sort(exact)[::-1], 2)[:k]
    np.testing.assert_allclose([hit.similarity for hit in hits], expected, atol=1e-6)


def test_an_empty_index_finds_nothing() -> None:
    """It has no items before the first upsert and after the last delete."""
    index = index_of()
    assert index.search(CORNERS[0], 5).hits == []

    index.upsert([image("a", CORNERS[0])])
    index.delete(["a", "nobody"])

    assert index.search(CORNERS[0], 5).hits == []


@pytest.mark.parametrize("index_type", TYPES)
def test_every_type_finds_added_items_and_no_deleted_ones(index_type: str) -> None:
    """A replaced item is found only by its new embedding."""
    index, embeddings_ND = many(300, 8)
    index.faiss_index = FaissIndex.build(index_type, index.rows, index.rows.row_count)
    new, moved = unit_vector(7, 8), unit_vector(8, 8)

    index.upsert([image("new", new), image("3", moved)])
    index.delete([str(number) for number in range(100, 200)])

    assert index.search(new, 1).hits[0].item_id == "new"
    assert index.search(moved, 1).hits[0].item_id == "3"
    everything = index.search(embeddings_ND[3], 300)
    found_ids = [hit.item_id for hit in everything.hits]
    assert sorted(found_ids) == sorted({str(n) for n in range(300) if not 100 <= n < 200} | {"new"})


# A graph is searched as HNSW4 is, and an IVF2 with codes as its lists and its codes are alone; each
# type is searched, without a filter, above.
SLOW_TYPES = ("NSG16", "IVF2,SQ8", "IVF2,PQ4np")


@pytest.mark.parametrize(
    "index_type",
    [
        "Flat",
        *(
            pytest.param(each, marks=pytest.mark.slow if each in SLOW_TYPES else ())
            for each in TYPES
        ),
    ],
)
def test_filters_equal_brute_force_at_every_selectivity(index_type: str) -> None:
    """With all lists searched and codes compared exactly, a filter does not change the recall.

    6,000 clustered items give each strategy its share of the selectivities. Precise codes find all
    of the nearest of 20 queries, the others nearly all.
    """
    dimension = 128 if "RaBitQ" in index_type else 8  # bits are for long embeddings
    embeddings_ND, queries_QD = clustered(6_000, dimension, 1), clustered(20, dimension, 3)
    index = index_of(dimension)
    index.upsert([image(str(n), each, number=n) for n, each in enumerate(embeddings_ND)])
    if index_type != "Flat":
        index.faiss_index = built = FaissIndex.build(index_type, index.rows, 6_000)
        if built.max_list_count:
            built.tune({"nprobe": built.max_list_count})
    strategies = set()
    for limit in (0, 1, 3, 30, 300, 2_000, 2_500, 3_000, 5_000, 6_000):
        shares = []
        for query in queries_QD:
            found = index.search(query, 10, InRange("number", below=limit))

            similarities_N = embeddings_ND[:limit] @ query
            expected = np.argsort(-similarities_N, kind="stable")[:10].tolist()
            found_rows = [int(hit.item_id) for hit in found.hits]
            strategies.add(found.path.strategy)
            assert found.path.matching_count == limit
            assert len(found_rows) == len(set(found_rows)) == min(10, limit)
            assert all(row < limit for row in found_rows)
            if index_type in EXACT_TYPES:
                # As near, for two that are level except for rounding may change places.
                np.testing.assert_allclose(
                    similarities_N[found_rows], similarities_N[expected], atol=1e-6
                )
            shares.append(len({*found_rows} & {*expected}) / max(1, len(expected)))
        if limit:
            assert np.mean(shares) >= COARSE_TYPES.get(index_type, 0.98)
    assert len(strategies) == 1 if index_type == "Flat" else len(strategies) >= 2


def test_the_strategy_follows_the_selectivity() -> None:
    """Few matches are scanned exactly, many are filtered after FAISS, others before it."""
    index, _ = many(6_000, 8, seed=1)
    index.faiss_index = FaissIndex.build("IVF2,Flat", index.rows, 6_000)
    query = unit_vector(3, 8)

    def strategy(condition: Filter | None) -> SearchStrategy:
        return index.search(query, 10, condition).path.strategy

    assert strategy(None) is SearchStrategy.UNFILTERED
    assert strategy(InRange("number", below=100)) is SearchStrategy.EXACT_SCAN
    assert strategy(InRange("number", below=2_500)) is SearchStrategy.PRE_FILTER
    assert strategy(Not(InRange("number", below=100))) is SearchStrategy.POST_FILTER
    index.faiss_index = None
    assert strategy(OneOf("parity", ("odd",))) is SearchStrategy.EXACT_SCAN
    assert strategy(None) is SearchStrategy.EXACT_SCAN


def test_a_filter_sees_changes_at_once() -> None:
    """Each kind of change by itself: of several, one would do for the others."""
    index, _ = many(50, 8)
    query = unit_vector(3, 8)

    def found_ids() -> set[str]:
        found = index.search(query, 60, OneOf("parity", ("odd",)))
        assert found.path.matching_count == len(found.hits)
        return {hit.item_id for hit in found.hits}

    odd = {str(number) for number in range(1, 50, 2)}
    assert found_ids() == odd
    index.delete(["1"])
    assert found_ids() == odd - {"1"}
    index.upsert([image("new", query, parity="odd")])
    assert found_ids() == odd - {"1"} | {"new"}
    index.upsert([image("2", query, parity="odd"), image("3", query, parity="even")])
    assert found_ids() == odd - {"1", "3"} | {"new", "2"}


def test_a_filter_is_remembered_by_its_values_types() -> None:
    """1 and True are equal keys in Python, but different values in a filter."""
    index = index_of()
    index.upsert([image("number", CORNERS[0], x=1), image("flag", CORNERS[0], x=True)])

    assert [hit.item_id for hit in index.search(CORNERS[0], 2, OneOf("x", (1,))).hits] == ["number"]
    assert [hit.item_id for hit in index.search(CORNERS[0], 2, OneOf("x", (True,))).hits] == [
        "flag"
    ]
