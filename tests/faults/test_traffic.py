"""Runs with too little traffic prove nothing and say so."""

import random

import pytest

from tests.faults.history import History
from tests.faults.traffic import FLOOR_WRITES_PER_SECOND, Traffic


def test_a_run_below_the_floor_is_invalid() -> None:
    """So many answered writes a second are enough, and one fewer is not."""
    traffic = Traffic(History(), random.Random(1), seconds=2.0)

    traffic.answered_count = int(2 * FLOOR_WRITES_PER_SECOND)
    traffic.check_floor()

    traffic.answered_count -= 1
    with pytest.raises(AssertionError, match="invalid run"):
        traffic.check_floor()
