"""Provides threads in which FAISS does not start further ones."""

from concurrent.futures import ThreadPoolExecutor

import faiss

from tandem.chassis.process.threads import started_threads


def keep_faiss_in_this_thread() -> None:
    """Makes FAISS use only the calling thread.

    OpenMP keeps that number per thread: setting it in the main thread does not affect the others.
    Where other work shared the cores, two OpenMP threads took two to six times as long as one for a
    search of 10,000 items, and ten times at the 99th percentile.
    """
    faiss.omp_set_num_threads(1)


def faiss_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Returns threads that search in parallel, one core each."""
    return started_threads(count, name, keep_faiss_in_this_thread)
