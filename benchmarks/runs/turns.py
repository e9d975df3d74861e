"""Compares the CPU time of a search between two commits, whose stacks take turns.

    python -m benchmarks.runs.turns BEFORE AFTER [--way merged] [--rounds 4] [--searches 40]

BEFORE and AFTER are worktrees, each with a virtual environment in `.venv`. Each serves the bundled
model with two shards and no caches, in separate services, in merged ones, over HTTP, or in an
engine, which has Triton's part too. CPU time of threads says the same on a busy machine, where a
clock says little; what both share with other work changes within a round as little as it can. Set
`CANARY_PERIOD_SECONDS` of tandem/chassis/health/health.py to an hour in both, or canaries count
too.

Prints medians over the rounds, the lowest and the highest, and the median of each round's ratio:
CPU milliseconds of a search, its p50, searches a second, the start and resident memory.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, get_type_hints

_CLIENT_COUNTS: Final = (1, 16)
_SCENE_COUNT: Final = 60
_INDEX: Final = "bench"
_SERVE: Final = "--serve"

_WAYS: Final = ("apart", "merged", "http", "engine")
_NOT_CPU: Final = ("models", "p50, ms", "searches a second", "start, s", "memory, MiB")

Costs = Mapping[str, float]
"""CPU milliseconds by service, those of Triton's stubs as "models", and those of `_NOT_CPU`."""


def main() -> None:
    """Prints a table and one line of JSON."""
    if sys.argv[1:2] == [_SERVE]:
        _serve(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description="CPU time of a search, before and after")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--way", choices=_WAYS, default="apart")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--searches", type=int, default=40, help="of a turn")
    arguments = parser.parse_args()
    way = arguments.way
    with _Tree(arguments.before, way) as before, _Tree(arguments.after, way) as after:
        turns: dict[int, list[tuple[Costs, Costs]]] = {count: [] for count in _CLIENT_COUNTS}
        for number in range(arguments.rounds):
            order = (before, after) if number % 2 == 0 else (after, before)
            for count in _CLIENT_COUNTS:
                costs = {tree: tree.searched(count, arguments.searches) for tree in order}
                turns[count].append((costs[before], costs[after]))
    print("| clients | figure; of a process CPU, ms a search | before | after | ratio |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for count, rounds in turns.items():
        for name in (*rounds[0][0], "services and Triton"):
            print(f"| {count} | {name} | {_row(name, rounds)} |")
    print(
        json.dumps({"run": "turns", "way": way, "load_average": os.getloadavg()[1], "turns": turns})
    )


def _row(name: str, rounds: Sequence[tuple[Costs, Costs]]) -> str:
    pairs = [(_cost(before, name), _cost(after, name)) for before, after in rounds]
    columns = [_spread(list(each)) for each in zip(*pairs, strict=True)]
    return " | ".join([*columns, _spread([after / before for before, after in pairs])])


def _cost(costs: Costs, name: str) -> float:
    if name in costs:
        return costs[name]
    return sum(cost for each, cost in costs.items() if each not in _NOT_CPU)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class _Tree:
    """A worktree's stack in a process of its own, with that tree's packages."""

    def __init__(self, folder: Path, way: str) -> None:
        self._process = subprocess.Popen(
            [folder / ".venv/bin/python", "-W", "ignore", Path(__file__).absolute(), _SERVE, way],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder.absolute())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        """Waits until it serves."""
        self._read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends it: at the end of its input it stops its stack."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def searched(self, client_count: int, search_count: int) -> Costs:
        """Returns what a search cost."""
        assert self._process.stdin
        self._process.stdin.write(f"{client_count} {search_count}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Costs:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a stack ended; its own error is above")
        costs: Costs = json.loads(line)
        return costs


def _serve(way: str) -> None:
    """Serves the tree's model, and answers each line of input with a line of costs.

    Only what commits of many months have alike is imported.
    """
    from tandem.corpus.scenes.records import scene_records
    from tandem.modeling.default_checkpoint import default_checkpoint
    from tandem.modeling.export.export import export_model

    precision = get_type_hints(export_model)["precision"]
    records = list(scene_records("test", 3, _SCENE_COUNT))
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        repository = Path(name) / "model_repository"
        # In a process of its own, or what an export leaves counts as the engine's memory.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as export:
            export.submit(
                export_model, default_checkpoint(), repository, precision("fp32")
            ).result()
        start = time.perf_counter()
        with (_engine if way == "engine" else partial(_stack, way))(
            Path(name) / "data", repository
        ) as (client, search, pids):
            items = ((each.record_id, each.image.read()) for each in records if each.image)
            queries = [record.captions[n % 3].text for n, record in enumerate(records)]
            outcomes = client.ingest(items, index_id=_INDEX)
            assert not [each.error for each in outcomes if each.error]
            search(queries[0])
            started = {"start, s": time.perf_counter() - start}
            for query in queries[: len(queries) // 2]:
                search(query)
            print("{}", flush=True)
            for line in sys.stdin:
                client_count, count = map(int, line.split())
                before, began = _cpu_ms(pids), time.perf_counter()
                with ThreadPoolExecutor(client_count) as clients:
                    asked = (queries[number % len(queries)] for number in range(count))
                    seconds = sorted(clients.map(partial(_timed, search), asked))
                rate = count / (time.perf_counter() - began)
                after = _cpu_ms(pids)
                costs = {each: (after[each] - before[each]) / count for each in after}
                costs |= {"p50, ms": 1000 * statistics.median(seconds), "searches a second": rate}
                memory = sum(map(_resident_mib, pids.values()))
                print(json.dumps(costs | started | {"memory, MiB": memory}), flush=True)


@contextmanager
def _stack(way: str, folder: Path, repository: Path) -> Iterator[tuple[Any, Any, dict[str, int]]]:
    """Yields a client of services, a search through them, and their processes."""
    from tandem.client import Client
    from tandem.stack.stack import LocalStack, Ports

    with LocalStack(
        *(folder, repository, Ports.free(2)),
        caches=False,
        merged=way == "merged",
        gateway=way == "http",
    ) as stack:
        stack.start()
        pids = {each.name: each.pid for each in stack.endpoints() if each.pid}

        def over_http(query: str) -> None:
            body = json.dumps({"index_id": _INDEX, "query": {"text": query}}).encode()
            asked = urllib.request.Request(
                f"{stack.http_url}v1/search", body, {"content-type": "application/json"}
            )
            with urllib.request.urlopen(asked) as answer:
                assert json.load(answer)["items"]

        with Client(stack.address, timeout_seconds=120.0) as client:
            search = partial(client.search, index_id=_INDEX)
            yield client, over_http if way == "http" else search, pids


@contextmanager
def _engine(folder: Path, repository: Path) -> Iterator[tuple[Any, Any, dict[str, int]]]:
    """Yields an engine, a search of it, and this process."""
    from tandem import Engine

    with Engine(folder, model=repository, shards=2, caches=False) as engine:
        yield engine, partial(engine.search, index_id=_INDEX), {"engine": os.getpid()}


def _timed(search: Callable[[str], object], query: str) -> float:
    start = time.perf_counter()
    search(query)
    return time.perf_counter() - start


def _resident_mib(pid: int) -> float:
    [line] = [
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in each
    ]
    return int(line.split()[1]) / 1024


def _cpu_ms(pids: Mapping[str, int]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for name, pid in pids.items():
        service = name.partition("-")[0]
        costs[service] = costs.get(service, 0.0) + _threads_ms(pid)
    if "triton" not in pids:
        return costs
    stubs = Path(f"/proc/{pids['triton']}/task").glob("*/children")
    children = [int(pid) for path in stubs for pid in path.read_text().split()]
    return costs | {"models": sum(map(_threads_ms, children))}


def _threads_ms(pid: int) -> float:
    nanoseconds = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            nanoseconds += int(path.read_text().split()[0])
        except OSError:  # the thread has ended meanwhile
            continue
    return nanoseconds / 1e6


if __name__ == "__main__":
    main()
