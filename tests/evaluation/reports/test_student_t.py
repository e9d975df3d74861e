"""Student's t, by its printed table."""

import doctest

import pytest

from tandem.evaluation.reports import student_t
from tandem.evaluation.reports.student_t import t_quantile


def test_doctests() -> None:
    """The example in the docstring is true."""
    result = doctest.testmod(student_t)

    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("freedom", "share", "expected"),
    [
        (1, 0.95, 12.706),
        (2, 0.95, 4.303),
        (3, 0.95, 3.182),
        (4, 0.95, 2.776),
        (9, 0.95, 2.262),
        (30, 0.95, 2.042),
        (1, 0.99, 63.657),
        (4, 0.99, 4.604),
        (10, 0.9, 1.812),
        (10_000, 0.95, 1.960),
    ],
)
def test_quantiles_are_those_of_the_table(freedom: int, share: float, expected: float) -> None:
    assert t_quantile(freedom, share) == pytest.approx(expected, abs=6e-4)


def test_one_value_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="at least two values"):
        t_quantile(0)
