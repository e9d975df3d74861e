"""Provides a lock that many readers may share and one writer may hold alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class LockBusy(Exception):
    """Raised instead of waiting for the lock."""


class SharedLock:
    """Lets readers share; a writer waits for the readers inside, and later readers for it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._sharer_count = 0
        self._is_exclusive = False
        self._waiting_count = 0

    @contextmanager
    def shared(self, *, at_once: bool = False) -> Iterator[None]:
        """Holds the lock with other sharers; `at_once` raises LockBusy instead of waiting."""
        with self._condition:
            # Waiting writers come first, or steady reading would starve them.
            if at_once and (self._is_exclusive or self._waiting_count):
                raise LockBusy
            self._condition.wait_for(lambda: not self._is_exclusive and not self._waiting_count)
            self._sharer_count += 1
        try:
            yield
        finally:
            with self._condition:
                self._sharer_count -= 1
                self._condition.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._condition:
            self._waiting_count += 1
            self._condition.wait_for(lambda: not self._is_exclusive and not self._sharer_count)
            self._waiting_count -= 1
            self._is_exclusive = True
        try:
            yield
        finally:
            with self._condition:
                self._is_exclusive = False
                self._condition.notify_all()
