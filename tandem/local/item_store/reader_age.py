"""Measures how long readers of an LMDB environment have held back pages that were freed.

LMDB's reader table has the transaction that each reader began at, but no times. A reader of
transaction n began before n + 1 was committed, so it is at least as old as that commit. A reader of
the newest state holds nothing back and counts as 0 s old.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

# One commit stands for all within this time, so that ages are too low by this much at most.
_RESOLUTION_SECONDS = 0.1
# Seven minutes of constant writing, which is also the largest age.
_KEPT_COUNT = 4_096


class CommitTimes:
    """Remembers when the latest transactions were committed; one thread notes, any may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[int, float]] = deque(maxlen=_KEPT_COUNT)
        self._newest: tuple[int, float] | None = None

    def note(self, transaction_id: int) -> None:
        """Notes a transaction that was just committed."""
        now = self._clock()
        self._newest = (transaction_id, now)
        if not self._kept or now - self._kept[-1][1] >= _RESOLUTION_SECONDS:
            self._kept.append(self._newest)

    def newest_age_seconds(self) -> float | None:
        """Returns how long ago the newest commit was; None before the first."""
        return None if self._newest is None else self._clock() - self._newest[1]

    def oldest_reader_age_seconds(self, reader_ids: Iterable[int]) -> float:
        """Returns a lower bound of the oldest reader's age, from the transactions they read."""
        oldest_id = min(reader_ids, default=None)
        if oldest_id is None:
            return 0.0
        # A copy, because the writer appends meanwhile.
        later = [*self._kept.copy(), *filter(None, [self._newest])]
        now = self._clock()
        times = (commit_time for commit_id, commit_time in later if commit_id > oldest_id)
        return max(0.0, now - next(times, now))


def reader_ids(table: str) -> list[int]:
    """Parses the transactions being read from `lmdb.Environment.readers()`."""
    # Each line has process, thread and transaction, under a heading; "-" marks an unused slot.
    rows = (line.split() for line in table.splitlines())
    return [int(row[2]) for row in rows if len(row) == 3 and row[2].isdecimal()]
