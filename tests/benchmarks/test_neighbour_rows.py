"""Rows of the tables of reranking by neighbours: sums, tests and headroom by hand."""

import pytest

from benchmarks.support.tables.neighbour_rows import Row, pool_lines
from tandem.lab.evaluation.metrics import paired_p_value


def test_hits_are_summed_over_seeds() -> None:
    """Two seeds of three queries: both, one and none of them answer first."""
    row = Row("LeaPRR", "", ([[1, 1, 4], [1, 2, 3]], [[1, 2], [2, 2]]))

    assert row.hits(0) == [2, 1, 0]
    assert row.hits(1) == [1, 0]
    assert row.recalls()[0] == pytest.approx([200 / 3, 100 / 3])
    assert row.recalls()[3] == pytest.approx([50, 0])


def test_texts_of_one_picture_count_as_one_query() -> None:
    """Six texts of two pictures: the first picture's are all found, the second's are not."""
    found, missed = [1, 1, 1, 2, 2, 2], [2, 2, 2, 2, 2, 2]
    row = Row("LeaPRR", "", ([[1, 2]], [found]), [0, 0, 0, 1, 1, 1])
    base = Row("BE", "", ([[2, 2]], [missed]), [0, 0, 0, 1, 1, 1])

    assert row.hits(1) == [3, 0]
    assert row.hits(0) == [1, 0]
    # One picture alone differs: as likely as not. Six independent texts would say 0.25.
    assert row.p_value(1, base) == 1
    assert paired_p_value([1, 1, 1, 0, 0, 0], [0] * 6) == 0.25
    assert row.gap(1, base) == pytest.approx(50)


def test_rows_are_compared_query_by_query_by_the_means_of_their_seeds() -> None:
    """Ten queries, found in each seed of one row and in no seed of the others."""
    found, missed, third = (
        Row(name, "", ([seed] * count, [[1]] * count))
        for name, seed, count in [("a", [1] * 10, 2), ("b", [2] * 10, 2), ("c", [2] * 10, 3)]
    )

    assert found.p_value(0, missed) == paired_p_value([2] * 10, [0] * 10) < 0.01
    assert found.p_value(0, third) == found.p_value(0, missed)
    assert third.p_value(0, missed) == 1
    assert found.p_value(0, Row("d", "", ([[1] * 10] * 3, [[1]] * 3))) == 1


def test_a_flawless_order_of_a_pool_finds_what_is_in_it() -> None:
    base = Row("BE", "", ([[1, 2, 5]], [[1, 9, 9]]))

    *_, two, eight = pool_lines(base, depths=(2, 8))

    assert two == "| 2 | 66.7 | 33.3 |"
    assert eight == "| 8 | 100.0 | 33.3 |"
