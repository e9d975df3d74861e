"""How long readers of an LMDB environment have held back pages that a writer has freed since.

LMDB's table of readers has the transaction that each began at, and no times. A reader of
transaction n began before n + 1 was committed, so it is at least as old as that commit. One that
reads the newest state holds nothing back, however often it is seen there, and counts as 0 s old.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

# Of commits in quick succession one stands for all: an age is told that much too low at most.
_RESOLUTION_SECONDS = 0.1
# Seven minutes of constant writing; a reader that is older counts as so old.
_KEPT_COUNT = 4_096


class CommitTimes:
    """When the writer's latest transactions were committed. Noted by one thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[int, float]] = deque(maxlen=_KEPT_COUNT)
        self._newest: tuple[int, float] | None = None

    def note(self, transaction_id: int) -> None:
        """Notes a transaction that is committed now."""
        now = self._clock()
        self._newest = (transaction_id, now)
        if not self._kept or now - self._kept[-1][1] >= _RESOLUTION_SECONDS:
            self._kept.append(self._newest)

    def newest_age_seconds(self) -> float | None:
        """Returns how long ago the newest commit was; None before the first."""
        return None if self._newest is None else self._clock() - self._newest[1]

    def oldest_reader_age_seconds(self, reader_ids: Iterable[int]) -> float:
        """Returns at least how old the oldest of the readers is, by the transactions they read."""
        oldest_id = min(reader_ids, default=None)
        if oldest_id is None:
            return 0.0
        # A copy: the writer appends meanwhile.
        later = [*self._kept.copy(), *filter(None, [self._newest])]
        now = self._clock()
        times = (commit_time for commit_id, commit_time in later if commit_id > oldest_id)
        return max(0.0, now - next(times, now))


def reader_ids(table: str) -> list[int]:
    """Returns the transactions that are being read, out of `lmdb.Environment.readers()`."""
    # Lines of process, thread and transaction under a heading; "-" where a slot is not in use.
    rows = (line.split() for line in table.splitlines())
    return [int(row[2]) for row in rows if len(row) == 3 and row[2].isdecimal()]
