"""Student's t, by its printed table."""

import pytest

from tandem.lab.evaluation.reports.spread import t_quantile


def test_quantiles_are_those_of_the_table() -> None:
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 30: 2.042, 10_000: 1.960}

    assert {each: t_quantile(each) for each in table} == pytest.approx(table, abs=6e-4)
