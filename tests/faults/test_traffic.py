"""Runs with too little traffic prove nothing and say so."""

import random

import pytest

from tests.support.faults.history import History
from tests.support.faults.run_counts import RUNS_VARIABLE
from tests.support.faults.traffic import FLOOR_WRITES_PER_SECOND, Traffic


@pytest.mark.parametrize(("asked", "share"), [("full", 1.0), ("", 0.1)])
def test_a_run_below_the_floor_is_invalid(
    monkeypatch: pytest.MonkeyPatch, asked: str, share: float
) -> None:
    """So many answered writes a second are enough, and one fewer is not; in short a tenth of it."""
    monkeypatch.setenv(RUNS_VARIABLE, asked)
    traffic = Traffic(History(), random.Random(1), seconds=2.0)

    traffic.answered_count = int(share * 2 * FLOOR_WRITES_PER_SECOND)
    traffic.check_floor()

    traffic.answered_count -= 1
    with pytest.raises(AssertionError, match="invalid run"):
        traffic.check_floor()
