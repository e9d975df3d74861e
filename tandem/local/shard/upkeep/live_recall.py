"""Samples users' searches and keeps the recall that repeating them exactly measured.

Recall is kept by direction, because an index can be bad at finding images by text and good at
finding images by image.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from tandem.contract.content import Modality
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import RowHit

DIRECTIONS = tuple(f"{query.value}_to_{target.value}" for query in Modality for target in Modality)
"""From the modality of the query to that of the items."""

_WAITING_COUNT = 64


class LiveRecall:
    """Samples searches, and keeps the measurements of the last window."""

    def __init__(self, sample_share: float, window_seconds: float, *, seed: int = 0) -> None:
        """Samples that share of the searches, unless too many wait to be repeated."""
        self._sample_share = sample_share
        self.window_seconds = window_seconds
        self._random = random.Random(seed)
        self._waiting: dict[str, deque[ShardQuery]] = {}
        self._lock = threading.Lock()
        self._measured: dict[tuple[str, str], deque[tuple[float, int, int]]] = {}

    def offer(self, query: ShardQuery) -> None:
        """Keeps a random share of the query's embeddings for later."""
        for embedding in query.embeddings:
            if self._random.random() < self._sample_share:
                self.keep(replace(query, embeddings=[embedding]))

    def keep(self, query: ShardQuery) -> None:
        """Keeps a query of one embedding for later, dropping its direction's oldest if it must."""
        with self._lock:
            waiting = self._waiting.setdefault(query.direction, deque(maxlen=_WAITING_COUNT))
            waiting.append(query)

    def take(self) -> ShardQuery | None:
        """Returns the next query to search again, or None.

        Directions take turns. Otherwise a common direction, sampled faster than it can be searched
        again, would leave a rare one unmeasured.
        """
        with self._lock:
            for direction, waiting in self._waiting.items():
                if waiting:
                    # To the end: its turn comes after the others'.
                    self._waiting[direction] = self._waiting.pop(direction)
                    return waiting.popleft()
            return None

    def note(self, query: ShardQuery, found: Sequence[RowHit], nearest: Sequence[RowHit]) -> None:
        """Records how many of the truly nearest items the index found.

        An item as near as the last of them counts as one of them.
        """
        if not nearest:
            return
        limit = nearest[-1].similarity
        found_count = sum(hit.similarity >= limit for hit in found[: len(nearest)])
        with self._lock:
            samples = self._measured.setdefault((query.index_id, query.direction), deque())
            samples.append((time.monotonic(), found_count, len(nearest)))

    def recall(self, index_id: str | None = None) -> dict[str, tuple[float, int]]:
        """Returns, by direction, the recall in the window, 0 to 1, and its number of searches."""
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

    def measured_ids(self) -> set[str]:
        """Returns the indexes that have measurements."""
        with self._lock:
            return {index_id for index_id, _ in self._measured}

    def forget(self, index_id: str) -> None:
        """Drops the measurements of an index, which was rebuilt or tuned."""
        with self._lock:
            for key in [key for key in self._measured if key[0] == index_id]:
                del self._measured[key]
