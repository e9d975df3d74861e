"""What a caller's quota is charged for a rerank: the pairs that the cross-encoder read for it."""

from types import TracebackType
from typing import Self

from tandem.chassis.guard import current_caller


class PairQuota:
    """Takes pairs before a rerank, and gives back on leaving what was not read.

    So no number of searches at once reads more than the quota, and a kept score costs nothing.
    """

    def __init__(self) -> None:
        self._caller = current_caller()
        self._taken_count = 0
        self._read_count = 0

    def take(self, count: int) -> None:
        """Raises QuotaExceeded where so many pairs are not left."""
        if self._caller is not None:
            self._caller.take_pairs(count)
            self._taken_count += count

    def note_read(self, count: int) -> None:
        """Keeps so many of what was taken."""
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
