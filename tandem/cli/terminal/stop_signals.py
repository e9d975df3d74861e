"""Handles the signals that stop a command: Ctrl-C, SIGTERM and SIGHUP."""

import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(SystemExit):
    """Ends a command that a signal stopped, with the signal's exit status."""


class StopSignals:
    """Records signals for work that polls them. Use it in a with statement.

    A handler runs wherever the main thread is, also inside a lock. So the handler must take no
    lock: a SimpleQueue supports that, and a threading.Event does not.
    """

    def __init__(self) -> None:
        """Changes no handler yet."""
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}
        self._is_raising = False
        self.number: int | None = None
        """The first signal."""

    @property
    def status(self) -> int:
        """Returns the exit status for the signal, as shells define it."""
        return 128 + (self.number or 0)

    def is_set(self) -> bool:
        """Returns whether a signal has arrived."""
        return self.number is not None

    def wait(self, seconds: float) -> bool:
        """Waits for a signal; returns False after `seconds` without one."""
        if self.number is None:
            try:
                self._queue.get(timeout=seconds)
            except queue.Empty:
                return False
        return True

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Makes a signal raise Stopped in the body, for work that cannot poll."""
        if self.number is not None:
            raise Stopped(self.status)
        self._is_raising = True
        try:
            yield
        finally:
            self._is_raising = False

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            before = signal.getsignal(number)
            # nohup ignores the terminal's end on purpose.
            if number == signal.SIGHUP and before == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        is_first = self.number is None
        if is_first:
            self.number = number
        self._queue.put(number)
        if is_first and self._is_raising:  # Once, so that cleaning up is not interrupted.
            raise Stopped(self.status)
