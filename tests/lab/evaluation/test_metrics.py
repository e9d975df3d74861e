"""Each number by hand, and intervals by the formula that defines them."""

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.lab.evaluation.metrics import (
    Recall,
    effective_query_count,
    mean_average_precision,
    mean_recall,
    mean_reciprocal_rank,
    median_rank,
    ndcg,
    paired_p_value,
    recall_at,
    recall_sum,
)

Z = 1.959964


@pytest.mark.parametrize(("k", "hit_count", "percent"), [(2, 2, 40.0), (10, 4, 80.0)])
def test_recall_by_hand(k: int, hit_count: int, percent: float) -> None:
    """Of answers at 1, 2, 5, 6 and nowhere, those at k or before count; nowhere never does."""
    recall = recall_at([1, 2, 5, 6, None], k)

    assert (recall.k, recall.hit_count, recall.query_count) == (k, hit_count, 5)
    assert recall.percent == pytest.approx(percent)


def test_no_queries_have_no_recall() -> None:
    """Neither 0 nor 100: refused."""
    with pytest.raises(ValueError, match="no queries were ranked"):
        recall_at([], 1)


@pytest.mark.parametrize(
    ("hits", "queries", "low", "high"),
    [
        # p = 1, n = 10: (1 + z²/20 ± z·sqrt(z²/400)) / (1 + z²/10), so 1 / 1.38415 and 1.
        (10, 10, 72.25, 100.0),
        # p = 0, n = 10: its mirror image.
        (0, 10, 0.0, 27.75),
        # Newcombe 1998, table I, method 3: 81 of 263.
        (81, 263, 25.53, 36.62),
    ],
)
def test_intervals_as_published(hits: int, queries: int, low: float, high: float) -> None:
    """Worked by hand at the ends, and against a published table."""
    assert Recall(1, hits, queries).interval_percent == pytest.approx((low, high), abs=0.006)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_interval_ends_are_where_the_share_is_barely_credible(counts: tuple[int, int]) -> None:
    hits, queries = counts
    recall = Recall(1, hits, queries)

    low, high = recall.interval_percent

    assert 0.0 <= low < high <= 100.0
    assert low - 1e-9 <= recall.percent <= high + 1e-9
    for end in (low / 100, high / 100):
        error = math.sqrt(end * (1 - end) / queries)
        assert abs(hits / queries - end) == pytest.approx(Z * error, abs=1e-7)


def test_captions_are_compared_by_their_content() -> None:
    """Worked by hand: sums 2, 0 and 1 of pairs, each 1 expected, so 36 · 0.25 / (1 + 1 + 0)."""
    hits, pictures = [True, True, False, False, True, False], [7, 7, 8, 8, 9, 9]

    assert effective_query_count(hits, pictures) == 4.5
    low, high = Recall(1, 3, 6, 4.5).interval_percent
    assert low < Recall(1, 3, 6).interval_percent[0]
    assert high > Recall(1, 3, 6).interval_percent[1]


@pytest.mark.parametrize("hit_count", [0, 30])
def test_captions_with_equal_answers_belong_to_one_picture(hit_count: int) -> None:
    """Five of each of 100 tell what one of each does; each of its own picture, all that they do."""
    ranks = [1 if picture < hit_count else 9 for picture in range(100) for _ in range(5)]
    alike = recall_at(ranks, 1, [number // 5 for number in range(500)])
    apart = recall_at(ranks, 1, range(500))

    of_pictures = Recall(1, hit_count, 100).interval_percent
    assert alike.interval_percent == pytest.approx(of_pictures)
    assert apart.interval_percent == pytest.approx(Recall(1, 5 * hit_count, 500).interval_percent)


def test_the_interval_has_its_stated_coverage() -> None:
    """Of pictures some of which are easy: 19 times in 20, and 5 captions taken for 5 pictures not.

    The latter is the positive control.
    """
    rng = random.Random(0)
    pictures = [number // 5 for number in range(500)]
    held = {"effective": 0, "naive": 0}
    for _ in range(400):
        ease = [rng.betavariate(0.6, 0.4) for _ in range(100)]  # 0.6 in the mean
        ranks = [1 if rng.random() < ease[picture] else 2 for picture in pictures]
        for name, recall in (
            ("effective", recall_at(ranks, 1, pictures)),
            ("naive", recall_at(ranks, 1)),
        ):
            low, high = recall.interval_percent
            held[name] += low <= 60.0 <= high

    assert 0.92 * 400 <= held["effective"] <= 0.98 * 400
    assert held["naive"] < 0.85 * 400


def test_ranks_by_hand() -> None:
    """Ranks 1, 2, 4, 10: reciprocals 1 + .5 + .25 + .1 over 4, and half way between 2 and 4."""
    assert mean_reciprocal_rank([1, 2, 4, 10]) == pytest.approx(1.85 / 4)
    assert median_rank([10, 1, 4, 2]) == 3.0
    # The papers' code cuts what lies between two ranks.
    papers = math.floor(statistics.median(rank - 1 for rank in (1, 1, 2, 2))) + 1
    assert (median_rank([1, 1, 2, 2]), papers) == (1.5, 1)
    assert median_rank([10, 1, 2]) == 2.0


def test_a_missing_answer_counts_as_last() -> None:
    """Nothing to MRR; to the median, infinitely far: leaving it out would flatter both."""
    assert mean_reciprocal_rank([2, None]) == 0.25
    assert median_rank([1, None, None]) == math.inf
    assert median_rank([None, 3, 1]) == 3.0


def test_every_answer_counts_by_hand() -> None:
    """Answers at 1, 3 and nowhere: precisions 1, 2/3 and 0; gains 1 + 1/2 of 1 + 1/log2 3 + 1/2."""
    queries = [(1, 3, None)]

    assert mean_average_precision(queries) == pytest.approx(5 / 9)
    assert ndcg(queries, 10) == pytest.approx(1.5 / (1.5 + 1 / math.log2(3)))
    # Behind the cut, 3 gains nothing, and no more than two answers could.
    assert ndcg(queries, 2) == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert mean_average_precision([*queries, (2, None)]) == pytest.approx((5 / 9 + 1 / 4) / 2)


def test_an_ideal_order_is_1_and_no_answer_0() -> None:
    ideal = [tuple(range(1, 13)), (1,)]

    assert (ndcg(ideal, 10), mean_average_precision(ideal)) == (1.0, 1.0)
    assert (ndcg([(None,)], 10), mean_average_precision([(None,)])) == (0.0, 0.0)


@given(st.lists(st.integers(1, 100), min_size=1))
def test_with_one_answer_map_is_mrr(ranks: list[int]) -> None:
    queries = [(rank,) for rank in ranks]

    assert mean_average_precision(queries) == pytest.approx(mean_reciprocal_rank(ranks))


def test_sums_over_both_directions() -> None:
    """Of 10 queries each way: 10 + 40 + 60 and 20 + 50 + 90 percent."""
    hits = [(1, 1), (5, 4), (10, 6), (1, 2), (5, 5), (10, 9)]
    recalls = [Recall(k, hit_count, 10) for k, hit_count in hits]

    assert recall_sum(recalls) == pytest.approx(270.0)
    assert mean_recall(recalls) == pytest.approx(45.0)


def test_sums_of_other_metrics_are_refused() -> None:
    """One direction, or other cut-offs, would give a number that looks like any other."""
    one_way = [Recall(k, 1, 10) for k in (1, 5, 10)]
    with pytest.raises(ValueError, match="both directions"):
        recall_sum(one_way)


@pytest.mark.parametrize(
    ("only_a", "only_b", "p_value"),
    [
        # Nothing sets them apart.
        (3, 3, 1.0),
        # 2 · (1 + 10) / 2**10.
        (1, 9, 22 / 1024),
        # Its mirror image: the test is two-sided.
        (9, 1, 22 / 1024),
    ],
)
def test_the_paired_test_by_hand(only_a: int, only_b: int, p_value: float) -> None:
    """Only queries that one of them answers count, however many both do or neither."""
    hits_a = [True] * only_a + [False] * only_b + [True] * 50 + [False] * 7
    hits_b = [False] * only_a + [True] * only_b + [True] * 50 + [False] * 7

    assert paired_p_value(hits_a, hits_b) == pytest.approx(p_value)


def test_the_paired_test_over_seeds_signs_each_query_once() -> None:
    """Every way to sign five differences, counted; three times the same seed adds nothing."""
    hits_a, hits_b = [3, 2, 0, 3, 1, 2], [0, 0, 1, 2, 1, 0]
    differences = [a - b for a, b in zip(hits_a, hits_b, strict=True)]
    signed = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=6)
    ]

    p_value = paired_p_value(hits_a, hits_b)

    assert p_value == pytest.approx(sum(s >= abs(sum(differences)) for s in signed) / len(signed))
    tripled = paired_p_value([3 * each for each in hits_a], [3 * each for each in hits_b])
    assert tripled == pytest.approx(p_value)


def test_the_paired_test_of_many_queries_is_a_number() -> None:
    """Where the two powers overflow a float: 1,500 apart, 100 of them the other way."""
    p_value = paired_p_value([True] * 1400 + [False] * 100, [False] * 1400 + [True] * 100)

    assert 0 <= p_value < 1e-200
