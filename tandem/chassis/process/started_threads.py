"""Makes thread pools whose threads all exist from the start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def started_threads(
    count: int, name: str, initializer: Callable[[], None] | None = None
) -> ThreadPoolExecutor:
    """Returns a pool of `count` threads, each of which has run `initializer`.

    A pool normally starts a thread when a call finds the others busy: under peak load, where hours
    after the start it would look like a leak.
    """
    threads = ThreadPoolExecutor(count, name, initializer)
    everyone = threading.Barrier(count + 1)
    for _ in range(count):
        threads.submit(everyone.wait)
    everyone.wait()
    return threads
