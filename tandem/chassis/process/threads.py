"""Makes a process's thread pools, and keeps those of libraries and of Python in check."""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from threadpoolctl import threadpool_limits

_BLAS_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
# Python lets another thread have the interpreter after 5 ms by default, and a health check needs a
# dozen turns of the loop.
_SWITCH_SECONDS = 0.0005


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


def keep_blas_in_this_thread() -> None:
    """Makes BLAS start no threads in this process, unless the environment sets how many.

    OpenBLAS starts one for each core of the machine, whatever share of them a container has, and
    each spins for tens of milliseconds after every large product. Calls run in parallel already.
    It applies to the libraries that are loaded by then.
    """
    if not any(name in os.environ for name in _BLAS_VARIABLES):
        threadpool_limits(limits=1, user_api="blas")


def switch_threads_often() -> None:
    """Keeps the event loop's waits for busy threads short, in the whole process."""
    sys.setswitchinterval(_SWITCH_SECONDS)
