"""Provides a lock that many readers may share and one writer may hold alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """Lets readers share; a writer waits for the readers inside, and later readers for it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._sharer_count = 0
        self._is_exclusive = False
        self._waiting_count = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._condition:
            # Waiting writers come first, or steady reading would starve them.
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
