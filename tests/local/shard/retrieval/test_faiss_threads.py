"""Tests that each of our threads searches with one FAISS thread."""

from concurrent.futures import Executor, ThreadPoolExecutor

import faiss

from tandem.local.shard.retrieval.faiss_threads import faiss_threads, keep_faiss_in_this_thread


def used_by(threads: Executor) -> int:
    return threads.submit(faiss.omp_get_max_threads).result(60)


def test_faiss_uses_one_thread_in_each_of_ours() -> None:
    """Setting it in the main thread does not affect a plain pool: OpenMP keeps it per thread."""
    keep_faiss_in_this_thread()
    with (
        ThreadPoolExecutor(1, initializer=faiss.omp_set_num_threads, initargs=(2,)) as others,
        faiss_threads(1, "test") as ours,
    ):
        assert faiss.omp_get_max_threads() == 1
        assert used_by(others) == 2
        assert used_by(ours) == 1
