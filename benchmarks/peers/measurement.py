"""How each party of `bench_index.py` is timed: by one client, or several processes at once.

Imported by the peers' scripts, each in an environment of its own, so it needs numpy alone. Every
client asks one query after another, from a place of its own in the list of queries.

Shapes: Q queries, d values of an embedding, k nearest items.
"""

import argparse
import json
import multiprocessing
import queue
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

Search = Callable[[F32, int], I64]
"""Returns the numbers of the items nearest to one embedding [d], at most k, best first."""

Connect = Callable[[], AbstractContextManager[Search]]
"""Opens a connection of one client. Picklable, since clients are processes."""

_WARM_UP_COUNT = 50
_CLIENT_START_SECONDS = 300.0


@dataclass(frozen=True)
class Vectors:
    """What every party reads: a folder of .npy files."""

    folder: Path

    def items_ND(self) -> F32:
        """Returns the items' embeddings, mapped from the file."""
        return np.load(self.folder / "items.npy", mmap_mode="r")

    def queries_QD(self) -> F32:
        """Returns the held-out queries."""
        return np.load(self.folder / "queries.npy")

    def truth_QK(self) -> I64:
        """Returns the numbers of the items truly nearest to each query, best first."""
        return np.load(self.folder / "truth.npy")


@dataclass
class Timing:
    """Seconds of each search of one party at one number of clients, and of all together."""

    seconds: list[float] = field(default_factory=list)
    wall_seconds: float = 0.0

    def add(self, other: "Timing") -> None:
        """Joins another round's."""
        self.seconds += other.seconds
        self.wall_seconds += other.wall_seconds

    def summary(self) -> dict[str, float]:
        """Returns p50, p95 and p99 in ms and searches a second."""
        p50, p95, p99 = np.percentile(self.seconds, [50, 95, 99])
        return {
            "p50_ms": round(1e3 * float(p50), 4),
            "p95_ms": round(1e3 * float(p95), 4),
            "p99_ms": round(1e3 * float(p99), 4),
            "searches_per_second": round(len(self.seconds) / self.wall_seconds, 1),
        }


def recall(search: Search, vectors: Vectors, k: int, query_count: int | None = None) -> float:
    """Returns which share of the truly nearest k the search finds, over the first queries."""
    queries_QD, truth_QK = vectors.queries_QD()[:query_count], vectors.truth_QK()[:query_count, :k]
    found_count = sum(
        len(np.intersect1d(search(query_D, k), nearest_K))
        for query_D, nearest_K in zip(queries_QD, truth_QK, strict=True)
    )
    return found_count / truth_QK.size


def least_effort(
    efforts: Iterable[dict[str, Any]],
    search_with: Callable[[dict[str, Any]], Search],
    vectors: Vectors,
    k: int,
    target: float,
) -> tuple[dict[str, Any], float]:
    """Returns the first effort that reaches the target and its recall; else the last one tried."""
    tried: dict[str, Any] = {}
    found = 0.0
    for tried in efforts:
        found = recall(search_with(tried), vectors, k)
        if found >= target:
            break
    return tried, found


def time_searches(search: Search, queries_QD: F32, k: int, count: int, start: int = 0) -> Timing:
    """Runs so many searches one after another, from a query on and around."""
    seconds = []
    start_time = time.perf_counter()
    for number in range(start, start + count):
        query_D = queries_QD[number % len(queries_QD)]
        before_time = time.perf_counter()
        search(query_D, k)
        seconds.append(time.perf_counter() - before_time)
    return Timing(seconds, time.perf_counter() - start_time)


def time_clients(
    connect: Connect, queries_QD: F32, k: int, count: int, client_count: int
) -> Timing:
    """Runs so many searches from each of several processes, which begin together."""
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    results: multiprocessing.Queue[tuple[float, float, list[float]] | str] = spawn.Queue()
    together = spawn.Barrier(client_count)
    clients = [
        spawn.Process(
            target=_client, args=(connect, queries_QD, k, count, number, together, results)
        )
        for number in range(client_count)
    ]
    for client in clients:
        client.start()
    try:
        parts = [_result(results, clients) for _ in clients]
    finally:
        for client in clients:
            client.join(10)
            if client.is_alive():
                client.kill()
    # perf_counter() is CLOCK_MONOTONIC: one clock for all processes of a machine.
    wall_seconds = max(part[1] for part in parts) - min(part[0] for part in parts)
    return Timing([each for part in parts for each in part[2]], wall_seconds)


def peer_arguments(description: str) -> argparse.Namespace:
    """Returns what `bench_index.py` tells a peer."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--vectors", type=Path, required=True, help="folder of the .npy files")
    parser.add_argument("--work", type=Path, required=True, help="empty folder for its own files")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--recall", type=float, default=0.98)
    parser.add_argument("--searches", type=int, default=2_000, help="by one client")
    parser.add_argument(
        "--clients", type=int, default=16, help="concurrent ones; one is measured as well"
    )
    return parser.parse_args()


def print_results(results: list[dict[str, Any]]) -> None:
    """Prints the line that `bench_index.py` looks for: the last."""
    print(json.dumps(results), flush=True)


def _client(
    connect: Connect,
    queries_QD: F32,
    k: int,
    count: int,
    number: int,
    together: Any,  # noqa: ANN401 (multiprocessing's type differs by context)
    results: Any,  # noqa: ANN401
) -> None:
    try:
        with connect() as search:
            start = number * (len(queries_QD) // 16)
            time_searches(search, queries_QD, k, _WARM_UP_COUNT, start)
            together.wait(_CLIENT_START_SECONDS)
            start_time = time.perf_counter()
            timing = time_searches(search, queries_QD, k, count, start)
            results.put((start_time, time.perf_counter(), timing.seconds))
    except Exception as error:  # for the parent, which reports it
        together.abort()
        results.put(f"{type(error).__name__}: {error}")


def _result(results: Any, clients: list[Any]) -> tuple[float, float, list[float]]:  # noqa: ANN401
    while True:
        try:
            part = results.get(timeout=5)
        except queue.Empty:
            if any(client.exitcode not in (None, 0) for client in clients):
                raise RuntimeError("a client process died") from None
            continue
        if isinstance(part, str):
            raise RuntimeError(f"a client failed: {part}")
        return part
