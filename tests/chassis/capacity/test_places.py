"""capacity.places: who gets how much, and who waits, when several ask."""

from __future__ import annotations

import asyncio

import pytest

from tandem.chassis.capacity.places import Places


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def filled(places: Places, caller: str, most: int = 1_000) -> int:
    """Takes places for `caller` until none is left for it; returns how many it got."""
    for number in range(most):
        if places.lack(caller):
            return number
        places.take(caller)
    return most


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def places(clock: Clock) -> Places:
    """24, as of a service on two cores."""
    return Places(24, 1_000, clock)


def test_a_caller_that_is_alone_gets_everything(places: Places) -> None:
    assert filled(places, "one") == 24


def test_while_others_ask_a_caller_gets_half(places: Places, clock: Clock) -> None:
    places.lack("other")
    assert filled(places, "one") == 12
    clock.time += 1.1
    assert filled(places, "one") == 12


def test_who_comes_later_is_not_kept_out(places: Places) -> None:
    assert filled(places, "one") == 24
    got = [filled(places, name) for name in ("two", "three", "four", "honest")]
    assert all(each >= 1 for each in got), got
    assert places.count <= 36


def test_what_comes_back_goes_to_who_has_less(places: Places, clock: Clock) -> None:
    filled(places, "one")
    for _ in range(14):
        assert not places.lack("two") or places.of("two")[0] >= 4
        if not places.lack("two"):
            places.take("two")
        places.give_back("one")
        assert places.lack("one") == "count" or places.of("one")[0] < 12
        clock.time += 0.01
    assert places.of("two")[0] == 12


def test_bytes_are_shared_as_places_are(places: Places) -> None:
    """Alone all of them; what is in use when nothing else is may be any size."""
    assert places.lack("one", 1, 5_000) == ""
    places.take("one", 1, 1_000)
    assert places.lack("one", 1, 1) == "bytes"
    assert places.lack("two", 1, 200) == ""
    assert places.lack("two", 1, 501) == "bytes"
    places.give_back("one", 1, 1_000)
    places.take("two", 1, 200)
    assert places.lack("one", 1, 400) == ""
    places.take("one", 1, 400)
    assert places.lack("one", 1, 101) == "bytes"


def test_nothing_is_kept_of_callers_that_have_left(places: Places) -> None:
    for number in range(1_000):
        with places.taken(f"host {number}", 1, 10):
            pass
    assert (places.count, places.byte_count, len(places._shares)) == (0, 0, 0)


async def test_who_has_least_is_served_first() -> None:
    places = Places(2)
    order: list[str] = []

    async def one(caller: str) -> None:
        await places.wait_and_take(caller)
        order.append(caller)
        await asyncio.sleep(0)
        places.give_back(caller)

    places.take("many")
    places.take("many")
    waiting = [asyncio.create_task(one("many")) for _ in range(6)]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(one("few")))
    await asyncio.sleep(0)
    places.give_back("many")
    places.give_back("many")
    await asyncio.gather(*waiting)

    assert "few" in order[:2]
    assert order.count("many") == 6
    assert places.count == 0


async def test_a_wait_that_is_given_up_leaves_nothing() -> None:
    places = Places(1)
    places.take("one")
    given, queued = (asyncio.create_task(places.wait_and_take("one")) for _ in range(2))
    await asyncio.sleep(0)
    places.give_back("one")  # to `given`, which is cancelled before it runs
    given.cancel()
    queued.cancel()
    await asyncio.gather(given, queued, return_exceptions=True)

    assert places.count == 0
    await asyncio.wait_for(places.wait_and_take("one"), 10)
