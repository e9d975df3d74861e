"""Student's t, by its printed table."""

import pytest

from tandem.lab.evaluation.reports.spread import t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (9, 2.262),
        (30, 2.042),
        (10_000, 1.960),
    ],
)
def test_quantiles_are_those_of_the_table(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=6e-4)
