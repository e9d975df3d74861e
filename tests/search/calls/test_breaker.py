"""When a breaker opens, what it lets through then, and when it closes."""

import pytest

from tandem.search.calls.breaker import Breaker, BreakerState


class Clock:
    """A clock that advances on request."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Returns now."""
        return self.seconds


def opened(clock: Clock) -> Breaker:
    """Returns a breaker that just opened."""
    breaker = Breaker(clock=clock)
    for _ in range(5):
        breaker.failed()
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_five_failures_in_a_row_open_it() -> None:
    """Four never do, while the share of failures stays under a half."""
    breaker = Breaker()
    for _ in range(4):
        for _ in range(4):
            breaker.failed()
        for _ in range(5):
            breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED

    for _ in range(5):
        breaker.failed()

    assert breaker.state is BreakerState.OPEN
    assert not breaker.admit()


@pytest.mark.parametrize(("failures", "state"), [(9, "CLOSED"), (10, "OPEN")])
def test_half_of_the_last_twenty_open_it(failures: int, state: str) -> None:
    """Spread, so that five are never consecutive; the twentieth call decides."""
    breaker = Breaker()
    for number in range(20):
        assert breaker.state is BreakerState.CLOSED
        if number % 2 and number // 2 < failures:
            breaker.failed()
        else:
            breaker.succeeded()

    assert breaker.state is BreakerState[state]


def test_open_it_lets_one_probe_through_each_second() -> None:
    """Other calls are refused meanwhile, whether or not the probe has ended."""
    clock = Clock()
    breaker = opened(clock)

    admitted = []
    for _ in range(40):
        clock.seconds += 0.1
        admitted.append(breaker.admit())

    assert sum(admitted) in (3, 4)
    assert not any(admitted[:9])


def test_a_probe_that_succeeds_closes_it() -> None:
    """It also forgets earlier failures: the next one alone does not open it again."""
    clock = Clock()
    breaker = opened(clock)
    clock.seconds += 1.0
    assert breaker.admit()
    assert breaker.state is BreakerState.PROBING

    breaker.succeeded()
    breaker.failed()

    assert breaker.state is BreakerState.CLOSED
    assert breaker.admit()


def test_a_probe_that_fails_leaves_it_open_for_another_second() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.seconds += 1.0
    assert breaker.admit()

    breaker.failed()

    assert breaker.state is BreakerState.OPEN
    clock.seconds += 0.99
    assert breaker.is_refusing
    assert not breaker.admit()
    clock.seconds += 0.01
    assert not breaker.is_refusing
    assert breaker.admit()


def test_asking_whether_it_refuses_uses_no_probe() -> None:
    """The probe is left to an actual call."""
    clock = Clock()
    breaker = opened(clock)
    clock.seconds += 1.0

    assert not any(breaker.is_refusing for _ in range(3))
    assert breaker.admit()
