"""How fast the cross-encoder reads, as measured of late, and how many pairs to hand it at once."""

import time
from collections.abc import Callable
from dataclasses import dataclass

# Of the newest measurement, as TCP weighs round-trip times: about the last ten count.
_MEAN_WEIGHT = 0.125
_DEVIATION_WEIGHT = 0.25

# The mean and this many deviations: about what nineteen chunks of twenty stay under.
_DEVIATION_COUNT = 2.0

# Time is plenty where the rest would fit this many times over.
_PLENTY = 2.0

# Before anything was measured, unless there is time for any model: enough to measure by, few enough
# to lose.
_FIRST_COUNT = 8
_LONG_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRule:
    """How large a chunk of candidates is."""

    seconds: float = 0.05
    """What a chunk should take at most where time is short."""
    pair_count: int = 64
    """Pairs of a chunk where it is not."""
    trial_seconds: float = 1.0
    """Between two tries of a cross-encoder that was too slow for the time there was."""


CHUNK_RULE = ChunkRule()
"""The rule where nothing else is set."""


class RerankPace:
    """A moving estimate of the seconds a pair takes, all that is around it included."""

    def __init__(
        self, rule: ChunkRule = CHUNK_RULE, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` gives seconds that never go back."""
        self._rule = rule
        self._clock = clock
        self._mean_seconds: float | None = None
        self._deviation_seconds = 0.0
        self._trial_time = 0.0
        """When the next try of a too slow cross-encoder is due."""

    def note(self, pair_count: int, seconds: float) -> None:
        """Takes in a chunk that was scored."""
        pair_seconds = seconds / pair_count
        if self._mean_seconds is None:
            self._mean_seconds, self._deviation_seconds = pair_seconds, pair_seconds / 2
            return
        error = pair_seconds - self._mean_seconds
        if pair_seconds < self._mean_seconds / 2:
            # Well again after an outage: what was measured in it says nothing of now.
            self._mean_seconds, self._deviation_seconds = pair_seconds, pair_seconds / 2
            return
        self._mean_seconds += _MEAN_WEIGHT * error
        self._deviation_seconds += _DEVIATION_WEIGHT * (abs(error) - self._deviation_seconds)

    def note_late(self, pair_count: int, seconds: float) -> None:
        """Takes in a chunk that was not scored within the time it was given."""
        if self._mean_seconds is None or seconds / pair_count > self._mean_seconds:
            self.note(pair_count, seconds)

    def chunk_size(self, pair_count: int, left_seconds: float) -> int:
        """Returns how many of the pairs to score next; 0 where there is no time for one.

        All of them, up to the rule's number, where there is plenty of time; else what takes about
        the rule's time and is likely done in what is left.
        """
        if left_seconds <= 0:
            return 0
        most = min(pair_count, self._rule.pair_count)
        if self._mean_seconds is None:
            return most if left_seconds >= _LONG_SECONDS else min(most, _FIRST_COUNT)
        if pair_count * self._mean_seconds * _PLENTY <= left_seconds:
            return most
        likely_seconds = self._mean_seconds + _DEVIATION_COUNT * self._deviation_seconds
        fitting = int(left_seconds / likely_seconds)
        if not fitting:
            return self._trial_size()
        return min(most, fitting, max(1, int(self._rule.seconds / self._mean_seconds)))

    def _trial_size(self) -> int:
        # Without a try now and then, one bad spell would be believed for ever.
        now = self._clock()
        if now < self._trial_time:
            return 0
        self._trial_time = now + self._rule.trial_seconds
        return 1
