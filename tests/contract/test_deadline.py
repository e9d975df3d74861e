"""Deadlines: what is left of them, and whose they are."""

import math
from typing import cast

import grpc
import pytest

from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded


class Call:
    """A call whose caller waits so long."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def time_remaining(self) -> float | None:
        return self._seconds


def of_call(seconds: float | None, max_seconds: float = math.inf) -> Deadline:
    """Returns the deadline of a call whose caller waits so long."""
    context = cast("grpc.aio.ServicerContext", Call(seconds))
    return Deadline.of_call(context, default_seconds=1_000, max_seconds=max_seconds)


def test_remaining_time_decreases_and_then_turns_negative() -> None:
    deadline = Deadline.after(1_000)

    assert 0 < deadline.left() <= 1_000
    assert deadline.earlier(2_000).left() < -900


def test_a_deadline_that_passed_names_the_work_it_ends() -> None:
    assert 0 < Deadline.after(1_000).left_for("the test") <= 1_000
    with pytest.raises(DeadlineExceeded, match="the test"):
        Deadline.after(-1).left_for("the test")


@pytest.mark.parametrize(
    ("seconds", "max_seconds", "most"),
    [(500.0, math.inf, 500), (None, math.inf, 1_000), (500.0, 60.0, 60)],
)
def test_a_call_has_its_callers_deadline_within_the_limit(
    seconds: float | None, max_seconds: float, most: float
) -> None:
    assert most - 50 < of_call(seconds, max_seconds).left() <= most


def test_a_call_whose_caller_gave_up_starts_no_work() -> None:
    with pytest.raises(DeadlineExceeded):
        of_call(0.0)
