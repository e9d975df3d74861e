"""A lock that many may share and one may have alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """Readers share it; who changes things waits for those inside, and later readers for that."""

    def __init__(self) -> None:
        """Makes a lock that nobody holds."""
        self._condition = threading.Condition()
        self._sharer_count = 0
        self._is_exclusive = False
        self._waiting_count = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the lock together with other sharers."""
        with self._condition:
            # Behind whoever waits to have it alone, or steady reading would hold off all changes.
            self._condition.wait_for(lambda: not self._is_exclusive and not self._waiting_count)
            self._sharer_count += 1
        try:
            yield
        finally:
            self._stop_sharing()

    @contextmanager
    def shared_at_once(self) -> Iterator[bool]:
        """Yields whether it holds the lock together with other sharers: never waits for it."""
        with self._condition:
            is_held = not self._is_exclusive and not self._waiting_count
            self._sharer_count += is_held
        try:
            yield is_held
        finally:
            if is_held:
                self._stop_sharing()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds the lock alone."""
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

    def _stop_sharing(self) -> None:
        with self._condition:
            self._sharer_count -= 1
            self._condition.notify_all()
