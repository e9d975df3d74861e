"""CPU of a search with services apart and merged, in turns: `tandem up`, `tandem up --merged`.

    python -m benchmarks.bench.merged [--rounds 6] [--searches 40] [--idle-seconds 6]

Two stacks run side by side over the same scenes. In each round both idle, and then each answers
the searches of one client and of 16; the order alternates. CPU is that of all threads by
/proc/PID/task/*/schedstat. What idling costs, canaries included, is listed apart; searches have
it too. The ratios are of the two stacks in one round, so that other work on the machine hits both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench.search import measure
from tandem.client import Client, SearchResult
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.local.stack import LocalStack, Ports
from tandem.model_io.precision import Precision, native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model

CLIENT_COUNTS = (1, 16)
SCENE_COUNT = 60
_MS_OF_NANOSECONDS = 1e-6


@dataclass
class Side:
    """One stack and what it spent: milliseconds of CPU, of all but the models, by what it did."""

    stack: LocalStack
    client: Client
    spent: dict[str, list[float]] = field(default_factory=dict)
    processes: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    p50_ms: dict[str, list[float]] = field(default_factory=dict)

    def cpu_ms(self) -> dict[str, float]:
        """Returns what each kind of process has spent since its start; the models are Triton's."""
        found: dict[str, float] = {}
        for each in self.stack.endpoints():
            kind = each.name.partition("-")[0]
            found[kind] = found.get(kind, 0.0) + _cpu_ms(each.pid)
        return found

    def note(self, work: str, before: Mapping[str, float], count: float) -> None:
        """Notes what was spent since `before`, by search or by second."""
        now = self.cpu_ms()
        parts = {kind: (ms - before[kind]) / count for kind, ms in now.items()}
        self.processes.setdefault(work, []).append(parts)
        self.spent.setdefault(work, []).append(sum(parts.values()))

    def ask(self, text: str) -> SearchResult:
        """Returns the answer to one query."""
        return self.client.search(text, index_id="bench")

    def search(self, queries: Sequence[str], clients: int) -> None:
        """Lets so many clients ask the queries."""
        work, before = f"{clients} clients", self.cpu_ms()
        timing = measure(self.ask, queries, clients)
        self.note(work, before, len(queries))
        self.p50_ms.setdefault(work, []).append(timing.summary()["p50_ms"])


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns medians, and the ratios of each round."""
    records = list(scene_records("test", 3, SCENE_COUNT))
    queries = [records[n % SCENE_COUNT].captions[0].text for n in range(arguments.searches)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        repository = Path(folder) / "model_repository"
        precision = Precision(arguments.precision or native_precision())
        export_model(default_checkpoint(), repository, precision)
        sides = {
            name: _opened(opened, Path(folder) / name, repository, records, merged=name == "merged")
            for name in ("apart", "merged")
        }
        for side in sides.values():
            for clients in CLIENT_COUNTS:
                measure(side.ask, queries, clients)
        for number in range(arguments.rounds):
            _round(list(sides.values())[:: 1 if number % 2 == 0 else -1], queries, arguments)
    return _result(sides, precision, arguments)


def _round(sides: Sequence[Side], queries: Sequence[str], arguments: argparse.Namespace) -> None:
    looks = [(side, side.cpu_ms(), time.monotonic()) for side in sides]
    time.sleep(arguments.idle_seconds)
    for side, before, start_time in looks:
        side.note("idle", before, time.monotonic() - start_time)
    for clients in CLIENT_COUNTS:
        for side in sides:
            side.search(queries, clients)


def _opened(
    opened: ExitStack, data: Path, repository: Path, records: Sequence[Record], *, merged: bool
) -> Side:
    stack = LocalStack(data, repository, Ports.free(2), caches=False, merged=merged)
    opened.enter_context(stack).start(timeout_seconds=300)
    client = opened.enter_context(Client(stack.address, timeout_seconds=120.0))
    pictures = ((record.record_id, record.image.read()) for record in records)
    outcomes = client.ingest(pictures, index_id="bench", batch_item_count=8)
    refused = [outcome for outcome in outcomes if outcome.error]
    assert not refused, refused[0].error
    return Side(stack, client)


def _result(
    sides: Mapping[str, Side], precision: Precision, arguments: argparse.Namespace
) -> dict[str, object]:
    apart, merged = sides["apart"], sides["merged"]
    works = list(apart.spent)
    return {
        "benchmark": "merged",
        "rounds": arguments.rounds,
        "searches_per_round": arguments.searches,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "precision": str(precision),
        "cpu_ms": {
            name: {work: _medians(side.processes[work]) for work in works}
            for name, side in sides.items()
        },
        "cpu_ms_of_all": {
            name: {work: statistics.median(side.spent[work]) for work in works}
            for name, side in sides.items()
        },
        "cpu_ratios": {work: _ratios(merged.spent[work], apart.spent[work]) for work in works},
        "p50_ratios": {
            work: _ratios(merged.p50_ms[work], apart.p50_ms[work]) for work in apart.p50_ms
        },
    }


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: statistics.median(each[kind] for each in rounds) for kind in rounds[0]}


def _ratios(merged: Sequence[float], apart: Sequence[float]) -> dict[str, float]:
    ratios = sorted(one / other for one, other in zip(merged, apart, strict=True))
    return {"least": ratios[0], "median": statistics.median(ratios), "most": ratios[-1]}


def _cpu_ms(pid: int) -> float:
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # A thread may end meanwhile, and its share with it.
        try:
            total += int(path.read_text().split()[0])
        except OSError:
            continue
    return total * _MS_OF_NANOSECONDS


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    of_all, ratios, p50 = result["cpu_ms_of_all"], result["cpu_ratios"], result["p50_ratios"]
    assert isinstance(of_all, dict)
    assert isinstance(ratios, dict)
    assert isinstance(p50, dict)
    rows = [
        "| services and Triton, less the models | apart, ms | merged, ms "
        "| ratio of a round: median (least to most) | p50's |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for work, ratio in ratios.items():
        shown = [
            f"{each['median']:.2f} ({each['least']:.2f} to {each['most']:.2f})" if each else ""
            for each in (ratio, p50.get(work))
        ]
        unit = "a second" if work == "idle" else "a search"
        rows.append(
            f"| {work}, {unit} | {of_all['apart'][work]:.1f} | {of_all['merged'][work]:.1f} "
            f"| {shown[0]} | {shown[1]} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="CPU of a search, services apart and merged")
    parser.add_argument("--precision", choices=tuple(Precision), default=None)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--searches", type=int, default=40, help="of a round and number of clients")
    parser.add_argument("--idle-seconds", type=float, default=6.0)
    arguments = parser.parse_args()
    result = run(arguments)
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
