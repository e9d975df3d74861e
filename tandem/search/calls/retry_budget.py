"""Limits retries, so that they do not make an outage worse."""


class RetryBudget:
    """Earns a share of a retry with each call, and spends one with each retry, process-wide."""

    def __init__(self, share: float = 0.1, saved_count: float = 10.0) -> None:
        """Earns `share` of a retry a call, 0 for none; starts with `saved_count`, its limit."""
        self._share = share
        self._saved_count = saved_count if share else 0.0
        self._left_count = self._saved_count

    def earn(self) -> None:
        """Notes a call that is not a retry."""
        self._left_count = min(self._saved_count, self._left_count + self._share)

    def spend(self) -> bool:
        """Returns whether a retry is allowed, and counts it if so."""
        if self._left_count < 1.0:
            return False
        self._left_count -= 1.0
        return True
