"""Threads in which FAISS uses no further ones."""

from concurrent.futures import ThreadPoolExecutor

import faiss

from tandem.chassis.started_threads import started_threads


def keep_faiss_in_this_thread() -> None:
    """Has FAISS use the calling thread alone.

    OpenMP keeps that number for each thread by itself: set in the main thread, it says nothing to
    the others. Two OpenMP threads for one search of 10,000 items took two to six times as long as
    one, and ten times at the 99th percentile, where other work shares the cores.
    """
    faiss.omp_set_num_threads(1)


def faiss_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Returns threads that search side by side, one core each."""
    return started_threads(count, name, keep_faiss_in_this_thread)
