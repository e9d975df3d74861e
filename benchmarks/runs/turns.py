"""Compares the CPU time of a search between two commits, whose stacks take turns.

    python -m benchmarks.runs.turns BEFORE AFTER [--rounds 4] [--searches 40]

BEFORE and AFTER are worktrees, each with a virtual environment in `.venv`. Each serves the bundled
model with two shards and no caches. CPU time of threads says the same on a busy machine, where a
clock says little; what both share with other work changes within a round as little as it can. Set
`CANARY_PERIOD_SECONDS` of tandem/chassis/health/health.py to an hour in both, or canaries count
too.

Prints medians over the rounds, the lowest and the highest, and the median of each round's ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_CLIENT_COUNTS: Final = (1, 16)
_SCENE_COUNT: Final = 60
_INDEX: Final = "bench"
_SERVE: Final = "--serve"

Costs = Mapping[str, float]
"""CPU milliseconds by service; those of Triton's stubs are "models"."""


def main() -> None:
    """Prints a table and one line of JSON."""
    if sys.argv[1:] == [_SERVE]:
        _serve()
        return
    parser = argparse.ArgumentParser(description="CPU time of a search, before and after")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--searches", type=int, default=40, help="of a turn")
    arguments = parser.parse_args()
    with _Tree(arguments.before) as before, _Tree(arguments.after) as after:
        turns: dict[int, list[tuple[Costs, Costs]]] = {count: [] for count in _CLIENT_COUNTS}
        for number in range(arguments.rounds):
            order = (before, after) if number % 2 == 0 else (after, before)
            for count in _CLIENT_COUNTS:
                costs = {tree: tree.searched(count, arguments.searches) for tree in order}
                turns[count].append((costs[before], costs[after]))
    print("| clients | process | before, ms a search | after | ratio |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for count, rounds in turns.items():
        for name in (*rounds[0][0], "services and Triton"):
            print(f"| {count} | {name} | {_row(name, rounds)} |")
    print(json.dumps({"run": "turns", "load_average": os.getloadavg()[1], "turns": turns}))


def _row(name: str, rounds: Sequence[tuple[Costs, Costs]]) -> str:
    pairs = [(_cost(before, name), _cost(after, name)) for before, after in rounds]
    columns = [_spread(list(each)) for each in zip(*pairs, strict=True)]
    return " | ".join([*columns, _spread([after / before for before, after in pairs])])


def _cost(costs: Costs, name: str) -> float:
    return costs[name] if name in costs else sum(costs.values()) - costs["models"]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class _Tree:
    """A worktree's stack in a process of its own, with that tree's packages."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [folder / ".venv/bin/python", "-W", "ignore", Path(__file__).absolute(), _SERVE],
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


def _serve() -> None:
    """Serves the tree's model, and answers each line of input with a line of costs.

    Only what commits of many months have alike is imported.
    """
    from tandem.client import Client
    from tandem.corpus.scenes.records import scene_records
    from tandem.local.stack import LocalStack, Ports
    from tandem.modeling.default_checkpoint import default_checkpoint
    from tandem.modeling.export.export import export_model
    from tandem.repository.precision import Precision, native_precision

    records = list(scene_records("test", 3, _SCENE_COUNT))
    queries = [record.captions[n % 3].text for n, record in enumerate(records)]
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        repository = Path(name) / "model_repository"
        export_model(default_checkpoint(), repository, Precision(native_precision()))
        with LocalStack(Path(name) / "data", repository, Ports.free(2), caches=False) as stack:
            stack.start()
            pids = {each.name: each.pid for each in stack.endpoints() if each.pid}
            with Client(stack.address, timeout_seconds=120.0) as client:

                def search(number: int) -> None:
                    found = client.search(queries[number % len(queries)], index_id=_INDEX)
                    assert not found.degradations, found.degradations

                items = ((each.record_id, each.image.read()) for each in records if each.image)
                outcomes = client.ingest(items, index_id=_INDEX, batch_item_count=8)
                assert not [each.error for each in outcomes if each.error]
                for number in range(len(queries) // 2):
                    search(number)
                print("{}", flush=True)
                for line in sys.stdin:
                    client_count, count = map(int, line.split())
                    before = _cpu_ms(pids)
                    with ThreadPoolExecutor(client_count) as clients:
                        list(clients.map(search, range(count)))
                    after = _cpu_ms(pids)
                    costs = {each: (after[each] - before[each]) / count for each in after}
                    print(json.dumps(costs), flush=True)


def _cpu_ms(pids: Mapping[str, int]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for name, pid in pids.items():
        service = name.partition("-")[0]
        costs[service] = costs.get(service, 0.0) + _threads_ms(pid)
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
