"""What share of the truly nearest items the searches of real users find.

Sampled searches are done again, exactly, in the background, and compared. By direction, since an
index can serve texts looking for images badly and images looking for images well.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from index_svc.retrieval.hit import F32, Hit
from tandem.contract.content import Modality
from tandem.contract.filters import Filter

DIRECTIONS = tuple(f"{query.value}_to_{target.value}" for query in Modality for target in Modality)
"""From what queries are made of to what they look for."""

_WAITING_COUNT = 64


@dataclass(frozen=True, slots=True, eq=False)
class SampledSearch:
    """A search to be done again."""

    index_id: str
    query_modality: Modality
    target_modality: Modality
    query: F32
    k: int
    filter: Filter | None

    @property
    def direction(self) -> str:
        """For example "text_to_image"."""
        return f"{self.query_modality.value}_to_{self.target_modality.value}"


class LiveRecall:
    """Samples searches, and keeps what was measured within the last window."""

    def __init__(self, sample_share: float, window_seconds: float, *, seed: int = 0) -> None:
        """Takes that share of the searches, as long as not too many wait to be done again."""
        self._sample_share = sample_share
        self.window_seconds = window_seconds
        self._random = random.Random(seed)
        self._waiting: dict[str, deque[SampledSearch]] = {}
        self._lock = threading.Lock()
        self._measured: dict[tuple[str, str], deque[tuple[float, int, int]]] = {}

    def offer(self, search: SampledSearch) -> None:
        """Keeps the search for later, if chance wants it."""
        if self._random.random() < self._sample_share:
            self.keep(search)

    def keep(self, search: SampledSearch) -> None:
        """Keeps the search for later; the oldest of its direction goes where too many wait."""
        with self._lock:
            self._waiting.setdefault(search.direction, deque(maxlen=_WAITING_COUNT)).append(search)

    def take(self) -> SampledSearch | None:
        """Returns the next search to do again; None where there is none.

        Directions take turns: where more is sampled than can be done again, a common one would
        else leave nothing measured of a rare one.
        """
        with self._lock:
            for direction, searches in self._waiting.items():
                if searches:
                    # To the end: its turn comes again after the others'.
                    self._waiting[direction] = self._waiting.pop(direction)
                    return searches.popleft()
            return None

    def note(self, search: SampledSearch, found: Sequence[Hit], nearest: Sequence[Hit]) -> None:
        """Compares what the index found with what is truly nearest.

        An item as near as the last of the nearest counts as one of them.
        """
        if not nearest:
            return
        limit = nearest[-1].similarity
        found_count = sum(hit.similarity >= limit for hit in found[: len(nearest)])
        with self._lock:
            samples = self._measured.setdefault((search.index_id, search.direction), deque())
            samples.append((time.monotonic(), found_count, len(nearest)))

    def recall(self, index_id: str | None = None) -> dict[str, tuple[float, int]]:
        """Returns, by direction, the recall of the window, 0 to 1, and from how many searches."""
        start_time = time.monotonic() - self.window_seconds
        sums: dict[str, tuple[int, int, int]] = {}
        with self._lock:
            for (measured_id, direction), samples in self._measured.items():
                while samples and samples[0][0] < start_time:
                    samples.popleft()
                if index_id not in (None, measured_id) or not samples:
                    continue
                found, nearest, count = sums.get(direction, (0, 0, 0))
                sums[direction] = (
                    found + sum(sample[1] for sample in samples),
                    nearest + sum(sample[2] for sample in samples),
                    count + len(samples),
                )
        return {direction: (found / of, count) for direction, (found, of, count) in sums.items()}

    def forget(self, index_id: str) -> None:
        """Drops what was measured of an index: it was built anew, or tuned."""
        with self._lock:
            for key in [key for key in self._measured if key[0] == index_id]:
                del self._measured[key]
