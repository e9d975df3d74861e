"""What tells a command to stop: Ctrl-C, SIGTERM, and the end of its terminal."""

import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(SystemExit):
    """The end of a command that a signal told to stop, with the status that tells of it."""


class StopSignals:
    """Takes note of signals, so that whoever works can look. Use it in a with statement.

    A handler runs wherever the main thread is: also within a lock that it would wait for. So the
    handler takes none: a SimpleQueue is made for that, and a threading.Event is not.
    """

    def __init__(self) -> None:
        """Changes no handler yet."""
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}
        self._is_raising = False
        self.number: int | None = None
        """The first signal that came."""

    @property
    def status(self) -> int:
        """The exit status that tells of it, as shells have it."""
        return 128 + (self.number or 0)

    def is_set(self) -> bool:
        """Returns whether one has come."""
        return self.number is not None

    def wait(self, seconds: float) -> bool:
        """Returns true as soon as one has come, and false after so many seconds without one."""
        if self.number is None:
            try:
                self._queue.get(timeout=seconds)
            except queue.Empty:
                return False
        return True

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Within it a signal raises Stopped: for work that nobody can ask to look."""
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
            # Under nohup the terminal's end is not meant to matter.
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
        if is_first and self._is_raising:  # once: what cleans up after it is left to end
            raise Stopped(self.status)
