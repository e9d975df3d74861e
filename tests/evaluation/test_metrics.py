"""Recall and its interval, by hand and by the formula that defines them."""

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.evaluation import metrics
from tandem.evaluation.metrics import Recall, recall_at

Z = 1.959964


def test_doctests() -> None:
    """The examples in the docstrings are true."""
    result = doctest.testmod(metrics)

    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("k", "hit_count", "percent"), [(1, 1, 20.0), (2, 2, 40.0), (5, 3, 60.0), (10, 4, 80.0)]
)
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
        # The same, 15 of 148.
        (15, 148, 6.24, 16.05),
    ],
)
def test_intervals_as_published(hits: int, queries: int, low: float, high: float) -> None:
    """Worked by hand at the ends, and against a published table."""
    assert Recall(1, hits, queries).interval_percent == pytest.approx((low, high), abs=0.006)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_interval_ends_are_where_the_share_is_barely_credible(counts: tuple[int, int]) -> None:
    """At each end p the observed share is z standard errors of p away: Wilson's definition."""
    hits, queries = counts
    recall = Recall(1, hits, queries)

    low, high = recall.interval_percent

    assert 0.0 <= low < high <= 100.0
    assert low - 1e-9 <= recall.percent <= high + 1e-9
    for end in (low / 100, high / 100):
        error = math.sqrt(end * (1 - end) / queries)
        assert abs(hits / queries - end) == pytest.approx(Z * error, abs=1e-7)


@given(st.integers(1, 500), st.floats(0.05, 0.95))
def test_more_queries_narrow_the_interval(queries: int, share: float) -> None:
    """Four times as many at the same share: about half as wide."""
    hits = round(share * queries)

    low, high = Recall(1, hits, queries).interval_percent
    narrower_low, narrower_high = Recall(1, 4 * hits, 4 * queries).interval_percent

    assert narrower_high - narrower_low < high - low
