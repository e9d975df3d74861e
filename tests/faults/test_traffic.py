"""Tests that runs with too little traffic are invalid."""

import random

import pytest

from tests.support.faults.history import History
from tests.support.faults.run_counts import RUNS_VARIABLE
from tests.support.faults.traffic import FLOOR_WRITES_PER_SECOND, Traffic


@pytest.mark.parametrize(("asked", "share"), [("full", 1.0), ("", 0.1)])
def test_a_run_below_the_floor_is_invalid(
    monkeypatch: pytest.MonkeyPatch, asked: str, share: float
) -> None:
    """One answered write a second fewer than the minimum is too few; short runs need a tenth."""
    monkeypatch.setenv(RUNS_VARIABLE, asked)
    traffic = Traffic(History(), random.Random(1), seconds=2.0)

    traffic.answered_count = int(share * 2 * FLOOR_WRITES_PER_SECOND)
    traffic.check_floor()

    traffic.answered_count -= 1
    with pytest.raises(AssertionError, match="invalid run"):
        traffic.check_floor()
