"""Estimates how fast the cross-encoder scores pairs, and sizes chunks by it."""

import time
from collections.abc import Callable

from tandem.search.settings import SEARCH_DEFAULTS, SearchSettings

# Weights of the newest measurement, as for TCP round-trip times: about the last ten count.
_MEAN_WEIGHT = 0.125
_DEVIATION_WEIGHT = 0.25

# The mean plus this many deviations: about 19 of 20 chunks take less.
_DEVIATION_COUNT = 2.0

# Time is plenty if the rest fits this many times.
_PLENTY = 2.0

# The first chunk, unless there is time for any model: enough to measure, few enough to lose.
_FIRST_COUNT = 8
_LONG_SECONDS = 2.0


class RerankPace:
    """Keeps a moving estimate of the seconds that a pair takes, overhead included."""

    def __init__(
        self,
        settings: SearchSettings = SEARCH_DEFAULTS,
        *,
        trial_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the time between two trials of a cross-encoder that was too slow."""
        self._settings, self._trial_seconds = settings, trial_seconds
        self._clock = clock
        self._mean_seconds: float | None = None
        self._deviation_seconds = 0.0
        self._trial_time = 0.0
        """When the next trial of a too slow cross-encoder is due."""

    def note(self, pair_count: int, seconds: float) -> None:
        """Updates the estimate with a scored chunk."""
        pair_seconds = seconds / pair_count
        if self._mean_seconds is None:
            self._mean_seconds, self._deviation_seconds = pair_seconds, pair_seconds / 2
            return
        error = pair_seconds - self._mean_seconds
        if pair_seconds < self._mean_seconds / 2:
            # It has recovered from an outage, whose measurements no longer apply.
            self._mean_seconds, self._deviation_seconds = pair_seconds, pair_seconds / 2
            return
        self._mean_seconds += _MEAN_WEIGHT * error
        self._deviation_seconds += _DEVIATION_WEIGHT * (abs(error) - self._deviation_seconds)

    def note_late(self, pair_count: int, seconds: float) -> None:
        """Updates the estimate with a chunk that ran out of time."""
        if self._mean_seconds is None or seconds / pair_count > self._mean_seconds:
            self.note(pair_count, seconds)

    def chunk_size(self, pair_count: int, left_seconds: float) -> int:
        """Returns how many of the pairs to score next; 0 if there is no time for one.

        With plenty of time it is all of them, up to the setting's count; else as many as take
        about the setting's time and are likely to finish in the time left.
        """
        if left_seconds <= 0:
            return 0
        most = min(pair_count, self._settings.rerank_chunk_pair_count)
        if self._mean_seconds is None:
            return most if left_seconds >= _LONG_SECONDS else min(most, _FIRST_COUNT)
        if pair_count * self._mean_seconds * _PLENTY <= left_seconds:
            return most
        likely_seconds = self._mean_seconds + _DEVIATION_COUNT * self._deviation_seconds
        fitting = int(left_seconds / likely_seconds)
        if not fitting:
            return self._trial_size()
        return min(
            most, fitting, max(1, int(self._settings.rerank_chunk_seconds / self._mean_seconds))
        )

    def _trial_size(self) -> int:
        # Without an occasional trial, one bad period would decide for ever.
        now = self._clock()
        if now < self._trial_time:
            return 0
        self._trial_time = now + self._trial_seconds
        return 1
