"""health.health: how often a canary is tried, and what is said after it."""

from __future__ import annotations

import asyncio
import time

import pytest

from tandem.chassis.health.health import CANARY_PAUSE_SECONDS, CANARY_PERIOD_SECONDS, Health
from tandem.errors import ModelUnavailable
from tests.support.chassis.longer_times import holds_with_longer_times

WATCHED_SECONDS = 4.0
SLACK_SECONDS = 0.02


class Canary:
    """A check that takes its time, and fails where the test says so."""

    def __init__(self, seconds: float, *, fails: bool = False) -> None:
        self._seconds = seconds
        self._fails = fails
        self._end_time: float | None = None
        self.pauses: list[float] = []

    async def ready(self) -> None:
        """Notes how long ago the one before ended."""
        if self._end_time is not None:
            self.pauses.append(time.monotonic() - self._end_time)
        await asyncio.sleep(self._seconds)
        self._end_time = time.monotonic()
        if self._fails:
            raise ModelUnavailable(model="joint_encoder", why="it does not answer")


async def warm() -> None:
    """Nothing to be done."""


async def pauses_of(canary: Canary, watched_seconds: float) -> list[float]:
    """Returns the seconds from each try's end to the next."""
    health = Health("watched", [])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(watched_seconds):
            await health.watch(warm, canary.ready)
    assert canary.pauses
    return canary.pauses


async def test_canaries_run_once_a_period_also_after_a_failure() -> None:
    """One that takes long pauses for less; one that failed may hold what others must have.

    The least pause is looked at: a busy machine makes any of them longer.
    """
    # Of more of them the least is nearer to what it is.
    await holds_with_longer_times(lambda factor: check_pauses(WATCHED_SECONDS * factor))


async def check_pauses(watched_seconds: float) -> None:
    """Watches four canaries for so long."""
    long_seconds = 0.6
    quick, long, longest, failed = [
        min(pauses)
        for pauses in await asyncio.gather(
            pauses_of(Canary(0.0), watched_seconds),
            pauses_of(Canary(long_seconds), watched_seconds),
            pauses_of(Canary(CANARY_PERIOD_SECONDS + 0.2), watched_seconds),
            pauses_of(Canary(long_seconds, fails=True), watched_seconds),
        )
    ]

    period = CANARY_PERIOD_SECONDS - SLACK_SECONDS
    assert quick >= period
    assert period - long_seconds <= long < period
    assert CANARY_PAUSE_SECONDS - SLACK_SECONDS <= longest < period - long_seconds
    assert failed >= period


async def test_the_reported_status_follows_the_canary() -> None:
    said: list[bool] = []
    health = Health("followed", [])
    sick = [False, True, True, False]

    async def ready() -> None:
        said.append(health.is_serving())
        if len(said) <= len(sick) and sick[len(said) - 1]:
            raise ModelUnavailable(model="joint_encoder", why="it does not answer")

    watching = asyncio.create_task(health.watch(warm, ready))
    async with asyncio.timeout(60):
        while len(said) <= len(sick):  # noqa: ASYNC110 (the watch has no event to wait for)
            await asyncio.sleep(0.05)
    watching.cancel()

    assert said == [True, True, False, False, True]
