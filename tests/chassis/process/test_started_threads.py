"""process.started_threads: a pool that is whole before its first call."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tandem.chassis.process.threads import started_threads


def count(name: str) -> int:
    """Returns how many threads of that pool there are."""
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def test_all_threads_are_there_before_the_first_call() -> None:
    """The control is a pool as it comes: it has none."""
    ready: list[str] = []

    def note() -> None:
        ready.append(threading.current_thread().name)

    with started_threads(5, "whole", note), ThreadPoolExecutor(5, "by need"):
        assert count("whole") == 5
        assert len({*ready}) == 5
        assert count("by need") == 0
