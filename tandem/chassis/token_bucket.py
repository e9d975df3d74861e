"""A rate with room for bursts."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Fills at a rate up to a burst, and is emptied by those who take. For one event loop."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`rate` is per second; begins full."""
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._level = burst
        self._level_time = clock()

    def take(self, count: float) -> float:
        """Takes so many, or nothing; returns in how many seconds they will be there, 0 if taken.

        More than the burst is never there: the seconds then say when the bucket is full.
        """
        self._fill()
        if count <= self._level:
            self._level -= count
            return 0.0
        return (min(count, self.burst) - self._level) / self.rate or 1.0 / self.rate

    def put_back(self, count: float) -> None:
        """Undoes a part of a take."""
        self._fill()
        self._level = min(self.burst, self._level + count)

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._level_time) * self.rate)
        self._level_time = now
