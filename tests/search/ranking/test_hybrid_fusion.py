"""The three fusions of the nearest items with those that words found, by hand-worked cases."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.contract.fusion import HybridFusion, HybridRank
from tandem.contract.search.query import HybridRule
from tandem.search.ranking.hybrid_fusion import (
    distribution_scores,
    fused_hits,
    reciprocal_ranks,
    z_scores,
)
from tandem.stages.hit import Hit, KeywordHit

NEAREST = [Hit("a", 0.9), Hit("b", 0.7), Hit("c", 0.5)]
WORDED = [KeywordHit(Hit("c", 0.5), 8.0), KeywordHit(Hit("d", 0.1), 4.0)]


def fused(fusion: HybridFusion, weight: float = 0.5, count: int = 10) -> list[tuple[str, float]]:
    rule = HybridRule(keywords="cup", fusion=fusion, keyword_weight=weight)
    return [(hit.item_id, hit.retrieval_score) for hit in fused_hits(NEAREST, WORDED, rule, count)]


def test_reciprocal_rank_adds_a_sixtieth_and_the_rank() -> None:
    """An item in both lists beats the first of either: 1/63 + 1/61 > 1/61 > 1/62."""
    assert fused(HybridFusion.RECIPROCAL_RANK) == [
        ("c", pytest.approx((1 / 63 + 1 / 61) / 2)),
        ("a", pytest.approx(1 / 61 / 2)),
        ("b", pytest.approx(1 / 62 / 2)),
        ("d", pytest.approx(1 / 62 / 2)),
    ]


def test_z_score_adds_distances_from_the_mean_in_deviations() -> None:
    """0.9, 0.7, 0.5 are 1.2247, 0, -1.2247 of their deviation; 8 and 4 are 1 and -1.

    An item that a list lacks counts as its last: -1.2247 or -1.
    """
    z = math.sqrt(1.5)
    assert fused(HybridFusion.Z_SCORE) == [
        ("a", pytest.approx((z - 1) / 2)),
        ("c", pytest.approx((1 - z) / 2)),
        ("b", pytest.approx((0 - 1) / 2)),
        ("d", pytest.approx((-z - 1) / 2)),
    ]


def test_distribution_scales_three_deviations_around_the_mean() -> None:
    """0.9, 0.7, 0.5 have a sample deviation of 0.2: 4/6, 3/6, 2/6. 8 and 4 have sqrt(8)."""
    part = 2 / (6 * math.sqrt(8))
    assert fused(HybridFusion.DISTRIBUTION) == [
        ("c", pytest.approx((2 / 6 + 0.5 + part) / 2)),
        ("a", pytest.approx(4 / 6 / 2)),
        ("b", pytest.approx(3 / 6 / 2)),
        ("d", pytest.approx((0.5 - part) / 2)),
    ]


def test_each_hit_says_which_lists_it_was_in() -> None:
    rule = HybridRule(keywords="cup")

    places = {hit.item_id: hit.hybrid for hit in fused_hits(NEAREST, WORDED, rule, 10)}

    assert places["a"] == HybridRank(1, None, None, pytest.approx(1 / 61 / 2))  # type: ignore[arg-type]
    assert places["d"] == HybridRank(None, 2, 4.0, pytest.approx(1 / 62 / 2))  # type: ignore[arg-type]
    assert places["c"] is not None
    assert (places["c"].similarity_rank, places["c"].keyword_rank) == (3, 1)


@pytest.mark.parametrize("fusion", HybridFusion)
def test_words_that_find_nothing_keep_the_nearest_items(fusion: HybridFusion) -> None:
    rule = HybridRule(keywords="?!", fusion=fusion)

    assert [hit.item_id for hit in fused_hits(NEAREST, [], rule, 2)] == ["a", "b"]
    assert fused_hits([], [], rule, 2) == []


@given(
    scores=st.lists(st.floats(-1e6, 1e6), max_size=20),
    fusion=st.sampled_from(HybridFusion),
)
def test_every_fusion_is_finite_and_keeps_the_order_of_a_list(
    scores: list[float], fusion: HybridFusion
) -> None:
    hits = [Hit(f"{n:02}", score) for n, score in enumerate(sorted(scores, reverse=True))]

    order = fused_hits(hits, [], HybridRule(keywords="cup", fusion=fusion), 20)

    assert all(math.isfinite(hit.retrieval_score) for hit in order)
    values = [hit.similarity for hit in order]
    assert values == sorted(values, reverse=True)


def test_equal_scores_are_the_middle() -> None:
    assert z_scores([3.0, 3.0]) == [0.0, 0.0]
    assert distribution_scores([3.0]) == [0.5]
    assert reciprocal_ranks([]) == []
