"""Tests which type an index gets, and which types are refused."""

import time

import pytest

from tandem.errors import IndexTypeInvalid
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import (
    IndexTuning,
    balanced_list_count,
    candidate_types,
    choose_index_types,
    is_outdated,
)


@pytest.mark.parametrize(
    ("item_count", "memory_bytes", "expected"),
    [
        (19_999, 0, ["Flat"]),
        (20_000, 0, ["IVF256,RaBitQfs", "IVF256,RaBitQfs,Refine(SQ8)"]),
        (1_000_000, 452_000_000, ["IVF2048,RaBitQfs", "IVF2048,RaBitQfs,Refine(SQ8)"]),
        (1_000_000, 451_999_999, ["IVF2048,RaBitQfs", "IVF2048,SQ8"]),
        (1_000_000, 391_999_999, ["IVF2048,RaBitQfs", "IVF2048,PQ192np"]),
        (1_000_000, 68_000_000, ["IVF2048,RaBitQfs", "IVF2048,PQ48np"]),
        (1_000_000, 1_000_000, ["Flat"]),
    ],
)
def test_auto_chooses_by_size_and_memory(
    item_count: int, memory_bytes: int, expected: list[str]
) -> None:
    """Of 384 values a row takes 60 bytes by bits, 384 in SQ8, fewer in PQ, and eight."""
    tuning = IndexTuning(memory_bytes=memory_bytes)
    assert choose_index_types(tuning, item_count, 384) == expected


def test_auto_chooses_no_bits_for_short_embeddings_or_on_a_gpu() -> None:
    """Bits are too coarse for short ones, and FAISS cannot move such an index to a GPU."""
    assert choose_index_types(IndexTuning(), 20_000, 127) == ["IVF256,SQ8"]
    assert choose_index_types(IndexTuning(), 20_000, 128)[0] == "IVF256,RaBitQfs"
    assert choose_index_types(IndexTuning(), 20_000, 128, is_on_gpu=True) == ["IVF256,SQ8"]


def test_auto_chooses_bytes_at_once_for_rows_that_exceed_the_memory() -> None:
    assert choose_index_types(IndexTuning(), 20_000, 128, rows_exceed_memory=True) == [
        "IVF256,RaBitQfs,Refine(SQ8)"
    ]


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        ("Flat", "IVF256,SQ8", True),
        ("IVF256,SQ8", "IVF512,SQ8", False),
        ("IVF256,SQ8", "IVF1024,SQ8", True),
        ("IVF256,SQ8", "IVF256,Flat", True),
        ("HNSW32", "HNSW16", True),
    ],
)
def test_a_list_count_may_be_off_by_less_than_four_times(
    current: str, wanted: str, expected: bool
) -> None:
    assert is_outdated(current, wanted) is expected


def test_lists_are_a_power_of_two_near_twice_the_root() -> None:
    assert [balanced_list_count(count) for count in (0, 100, 10_000, 10**6, 10**12)] == [
        64, 64, 256, 2048, 65_536,
    ]  # fmt: skip


def test_every_candidate_is_a_type_that_faiss_knows() -> None:
    for dimension in (384, 130, 7):
        for index_type in candidate_types(50_000, dimension):
            IndexTuning(index_type).check(dimension)


def test_a_small_index_is_not_advised_codes_that_it_cannot_train() -> None:
    """FAISS would fail for each of them, in words of its own."""
    assert not [each for each in candidate_types(255, 384) if "PQ" in each]
    assert [each for each in candidate_types(256, 384) if "PQ" in each]


@pytest.mark.parametrize(
    "index_type",
    ["IVF99999999,PQ8", "HNSW65537", "PQ8x24", "IVF4,Flat" + " " * 100],
)
def test_a_type_that_would_take_all_memory_is_refused_at_once(index_type: str) -> None:
    """FAISS would create a hundred million lists; the largest accepted number is cheap."""
    start_time = time.process_time()

    with pytest.raises(IndexTypeInvalid):
        IndexTuning(index_type).check(32)

    IndexTuning("IVF65536,Flat").check(32)
    assert time.process_time() - start_time < 2


@pytest.mark.parametrize("index_type", ["IVF0,Flat", "IVF4,PQ0"])
def test_a_type_with_a_zero_is_refused(index_type: str) -> None:
    """FAISS makes an index of one that cannot be searched; training another kills the process."""
    with pytest.raises(IndexTypeInvalid, match="has a 0 for what must be at least 1"):
        IndexTuning(index_type).check(32)


@pytest.mark.parametrize("index_type", ["HNSW1", "NSG15"])
def test_a_graph_of_too_few_links_is_refused(index_type: str) -> None:
    """The first row kills the process, or the build takes minutes."""
    with pytest.raises(IndexTypeInvalid, match=r"links a row; (HNSW|NSG) needs at least"):
        IndexTuning(index_type).check(32)
    IndexTuning("HNSW2").check(32)
    IndexTuning("NSG16").check(32)


def test_a_type_that_faiss_builds_but_cannot_search_is_refused(rows: EmbeddingRows) -> None:
    """The build fails, and not every search: codes of one bit, in parts of two."""
    with pytest.raises(IndexTypeInvalid, match="ksub"):
        FaissIndex.build("PQ8x1", rows, rows.row_count)


@pytest.mark.parametrize("value", [0.5, 1e7, float("nan")])
def test_a_search_parameter_has_bounds(rows: EmbeddingRows, value: float) -> None:
    """FAISS accepts any C integer, and allocates memory for it in each search."""
    index = FaissIndex.build("HNSW8", rows, rows.row_count)

    with pytest.raises(IndexTypeInvalid, match="send 1 to"):
        index.tune({"efSearch": value})
