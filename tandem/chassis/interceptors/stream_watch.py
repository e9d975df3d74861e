"""Ends a stream whose caller is idle, so that it frees its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tandem.errors import DeadlineExceeded


class StreamWatch:
    """Watches one call from its own task."""

    def __init__(self, max_idle_seconds: float) -> None:
        self._max_idle_seconds = max_idle_seconds
        self._loop = asyncio.get_running_loop()
        self._idle_since = 0.0
        self._waiting_for = ""
        self._ended_by = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raises DeadlineExceeded in the body if the caller is idle for too long."""
        self._task = asyncio.current_task()
        self._arm(self._max_idle_seconds)
        try:
            yield
        except asyncio.CancelledError:
            if not self._ended_by:
                raise
            # This cancellation is ours; the call continues and ends with a status.
            if self._task is not None:
                self._task.uncancel()
            raise DeadlineExceeded(
                what=f"a wait of {self._max_idle_seconds:g} s: {self._ended_by}"
            ) from None
        finally:
            self._timer.cancel()

    def note(self, waiting_for: str) -> None:
        """Sets what the call waits for, such as "no message came"; "" for nothing.

        The time starts when it is first set, and ends when something else is.
        """
        if waiting_for != self._waiting_for:
            self._waiting_for, self._idle_since = waiting_for, self._loop.time()

    def _arm(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        if not self._waiting_for:
            self._arm(self._max_idle_seconds)
            return
        left_seconds = self._idle_since + self._max_idle_seconds - self._loop.time()
        if left_seconds > 0:
            self._arm(left_seconds)
            return
        self._ended_by = self._waiting_for
        if self._task is not None:
            self._task.cancel()
