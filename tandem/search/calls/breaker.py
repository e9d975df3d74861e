"""A circuit breaker: stops calls to a service that keeps failing, and probes its recovery."""

import enum
import time
from collections import deque
from collections.abc import Callable

from tandem.search.settings import SEARCH_DEFAULTS, SearchSettings

# The share of failures is of so many calls, the last ones, once there are as many.
_WINDOW_COUNT = 20


class BreakerState(enum.Enum):
    """Says whether calls go through; values are the metric's."""

    CLOSED = 0
    """All calls go through."""
    PROBING = 1
    """One call goes through, as a probe."""
    OPEN = 2
    """No call goes through."""


class Breaker:
    """Breaks the circuit to one service; a call that says nothing of its health is not noted."""

    def __init__(
        self,
        settings: SearchSettings = SEARCH_DEFAULTS,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[BreakerState], object] | None = None,
    ) -> None:
        """Takes a monotonic `clock`; calls `on_change` with each new state."""
        self._settings = settings
        self._clock = clock
        self._on_change = on_change or (lambda _: None)
        self._state = BreakerState.CLOSED
        self._last: deque[bool] = deque(maxlen=_WINDOW_COUNT)
        """Whether each of the last calls failed."""
        self._consecutive_count = 0
        self._probe_time = 0.0
        """When the next probe is due, while not closed."""
        self._on_change(self._state)

    @property
    def state(self) -> BreakerState:
        """The current state."""
        return self._state

    @property
    def is_refusing(self) -> bool:
        """Whether a call now would be refused; reading this does not use up the probe."""
        return self._state is not BreakerState.CLOSED and self._clock() < self._probe_time

    def admit(self) -> bool:
        """Returns whether a call may go through; while open, the call that may is the probe."""
        if self._state is BreakerState.CLOSED:
            return True
        if self.is_refusing:
            return False
        # If the probe's outcome is never noted, another follows after the same wait.
        self._probe_time = self._clock() + self._settings.breaker_probe_seconds
        self._become(BreakerState.PROBING)
        return True

    def succeeded(self) -> None:
        """Notes that the service answered."""
        self._consecutive_count = 0
        if self._state is BreakerState.CLOSED:
            self._last.append(False)
            return
        self._last.clear()
        self._become(BreakerState.CLOSED)

    def failed(self) -> None:
        """Notes that the service failed."""
        if self._state is not BreakerState.CLOSED:
            # Also for calls from before it opened: their failures are known already.
            self._become(BreakerState.OPEN)
            return
        self._consecutive_count += 1
        self._last.append(True)
        is_window_full = len(self._last) == _WINDOW_COUNT
        share = sum(self._last) / len(self._last)
        if self._consecutive_count >= self._settings.breaker_consecutive_count or (
            is_window_full and share >= self._settings.breaker_failure_share
        ):
            self._consecutive_count = 0
            self._last.clear()
            self._probe_time = self._clock() + self._settings.breaker_probe_seconds
            self._become(BreakerState.OPEN)

    def _become(self, state: BreakerState) -> None:
        if state is not self._state:
            self._state = state
            self._on_change(state)
