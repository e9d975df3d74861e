"""Divides time between a re-embedding and searches, by how long searches take."""

import asyncio
import time
from collections.abc import Mapping

from tandem.search.metrics import SEARCH_DURATION

_WINDOW_SECONDS = 2.0
_WINDOW_SEARCH_COUNT = 20
_SLOWER = 1.5
_LEAST_SHARE = 0.02

Counts = Mapping[float, float]
"""How many searches took at most so many seconds, since the process began."""


class ReembedPace:
    """Says how long a re-embedding rests after it worked.

    It works a share of the time. Every 2 s that had 20 searches or more it looks at their p95: the
    share is halved where that is over 1.5 times the p95 from before it began, and otherwise grows
    by a tenth of the most that the operator allows. It never falls below 0.02, so that it ends.
    """

    def __init__(self, share: float, encode_count: int) -> None:
        """Takes the largest share of the time, and how many batches are encoded at once."""
        self.encoding = asyncio.Semaphore(encode_count)
        self._most, self.share = share, share / 4
        self._seen, self._window_time = _search_counts(), time.monotonic()
        self._usual_seconds = _p95_seconds(self._seen)

    def rest_seconds(self, worked_seconds: float) -> float:
        """Returns how long to rest after work of that length."""
        self._adapt()
        return worked_seconds * (1 / self.share - 1)

    def _adapt(self) -> None:
        if time.monotonic() < self._window_time + _WINDOW_SECONDS:
            return
        counts = _search_counts()
        p95_seconds = _p95_seconds(
            {b: count - self._seen.get(b, 0.0) for b, count in counts.items()}
        )
        self._seen, self._window_time = counts, time.monotonic()
        # Without searches before, the first ones since are the measure.
        self._usual_seconds = self._usual_seconds or p95_seconds
        if p95_seconds > _SLOWER * self._usual_seconds:
            self.share = max(self.share / 2, min(_LEAST_SHARE, self._most))
        else:
            self.share = min(self.share + self._most / 10, self._most)


def _search_counts() -> Counts:
    counts: dict[float, float] = {}
    for metric in SEARCH_DURATION.collect():
        for sample in metric.samples:
            if "le" in sample.labels:
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + sample.value
    return counts


def _p95_seconds(counts: Counts) -> float:
    """Returns the p95, interpolated in its bucket; 0 for too few searches."""
    bounds = sorted(counts)
    total = counts[bounds[-1]] if bounds else 0.0
    if total < _WINDOW_SEARCH_COUNT:
        return 0.0
    below_bound = below_count = 0.0
    for bound in bounds[:-1]:
        if (count := counts[bound]) >= 0.95 * total:
            share = (0.95 * total - below_count) / (count - below_count)
            return below_bound + share * (bound - below_bound)
        below_bound, below_count = bound, count
    return below_bound
