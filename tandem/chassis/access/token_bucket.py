"""A token bucket: a rate limit that allows bursts."""

import time
from collections.abc import Callable


class TokenBucket:
    """A bucket that refills at a rate up to a burst. For one event loop."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`rate` is per second; the bucket starts full."""
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._level = burst
        self._level_time = clock()

    def take(self, count: float, *, may_owe: bool = False) -> float:
        """Takes `count` or nothing; returns the seconds until they are available, 0 if taken.

        A `count` above the burst never is; the seconds are then those until the bucket is full.
        With `may_owe` it is taken from a full bucket, which is below zero then.
        """
        self._fill()
        needed = min(count, self.burst)
        if (needed if may_owe else count) <= self._level:
            self._level -= count
            return 0.0
        return (needed - self._level) / self.rate or 1.0 / self.rate

    def put_back(self, count: float) -> None:
        """Gives back a part of a take."""
        self._fill()
        self._level = min(self.burst, self._level + count)

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._level_time) * self.rate)
        self._level_time = now
