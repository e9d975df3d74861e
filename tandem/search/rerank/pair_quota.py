"""Charges a caller's quota for a rerank: one for each pair that the cross-encoder scores."""

from types import TracebackType
from typing import Self

from tandem.chassis.access.callers import current_caller


class PairQuota:
    """Takes pairs before a rerank, and returns the unused ones on exit.

    So concurrent searches cannot exceed the quota, and a cached score costs nothing.
    """

    def __init__(self) -> None:
        self._caller = current_caller()
        self._taken_count = 0
        self._read_count = 0

    def take(self, count: int) -> None:
        """Takes that many pairs; raises QuotaExceeded if fewer are left."""
        if self._caller is not None:
            self._caller.take_pairs(count)
            self._taken_count += count

    def note_read(self, count: int) -> None:
        """Notes that so many of the taken pairs were scored."""
        self._read_count += count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unread_count = self._taken_count - self._read_count
        if self._caller is not None and unread_count > 0:
            self._caller.return_pairs(unread_count)
