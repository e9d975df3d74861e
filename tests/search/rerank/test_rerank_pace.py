"""Chunk sizes: all at once if time is plenty, what fits if it is short."""

import pytest

from tandem.search.rerank.pace import RerankPace


def paced(pair_seconds: float) -> RerankPace:
    """Returns a pace that measured this often enough to be sure."""
    pace = RerankPace()
    for _ in range(40):
        pace.note(20, 20 * pair_seconds)
    return pace


def test_an_ordinary_search_with_time_is_one_chunk() -> None:
    """However slow the model is, another round trip would gain nothing."""
    assert paced(0.002).chunk_size(20, 9.0) == 20
    assert paced(0.025).chunk_size(20, 9.0) == 20


def test_slow_chunks_are_cut_to_fifty_milliseconds_when_time_is_short() -> None:
    """At 10 ms a pair it is five; at 100 ms a pair it is one, the minimum."""
    assert paced(0.010).chunk_size(20, 0.3) == 5
    assert paced(0.100).chunk_size(20, 1.0) == 1


def test_a_chunk_is_no_larger_than_what_likely_fits() -> None:
    """At 10 ms a pair and no spread, 30 ms are three."""
    assert paced(0.010).chunk_size(20, 0.0301) == 3


def test_a_spread_makes_it_careful() -> None:
    steady, varying = paced(0.010), paced(0.010)
    for _ in range(20):
        varying.note(10, 0.06)
        varying.note(10, 0.14)

    assert varying.chunk_size(20, 0.05) < steady.chunk_size(20, 0.05)


def test_a_few_are_tried_before_the_pace_is_known() -> None:
    """Unless there is no time at all, or enough for any model."""
    assert RerankPace().chunk_size(20, 5.0) == 20
    assert RerankPace().chunk_size(20, 0.2) == 8
    assert RerankPace().chunk_size(5, 0.2) == 5
    assert RerankPace().chunk_size(5, 0.0) == 0


@pytest.mark.parametrize("seconds", [0.3, 3.0])
def test_a_chunk_that_is_too_slow_is_not_started_except_once_a_second(seconds: float) -> None:
    """Otherwise the first bad minute would decide for ever."""
    clock = [0.0]
    pace = RerankPace(trial_seconds=1.0, clock=lambda: clock[0])
    for _ in range(20):
        pace.note_late(4, 4 * seconds)

    sizes = []
    for _ in range(25):
        sizes.append(pace.chunk_size(20, 0.2))
        clock[0] += 0.125

    assert set(sizes) == {0, 1}
    assert sum(sizes) == 4


def test_a_recovery_takes_effect_at_once() -> None:
    """One chunk at the old pace, after an outage that was a hundred times slower."""
    pace = paced(0.002)
    for _ in range(30):
        pace.note_late(2, 0.4)
    assert pace.chunk_size(20, 0.2) <= 1

    pace.note(1, 0.006)

    assert pace.chunk_size(20, 0.4) == 20
