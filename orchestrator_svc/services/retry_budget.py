"""How many calls may be made a second time, so that an outage is not made worse by asking more."""


class RetryBudget:
    """Each call earns a share of a retry; each retry costs one. One for the whole process."""

    def __init__(self, share: float = 0.1, saved_count: float = 10.0) -> None:
        """`share` is of a retry a call, 0 for none; at most `saved_count` retries are saved up.

        It begins with these.
        """
        self._share = share
        self._saved_count = saved_count if share else 0.0
        self._left_count = self._saved_count

    def earn(self) -> None:
        """Notes a call that is no retry."""
        self._left_count = min(self._saved_count, self._left_count + self._share)

    def spend(self) -> bool:
        """Returns whether a retry may be made, and counts it."""
        if self._left_count < 1.0:
            return False
        self._left_count -= 1.0
        return True
