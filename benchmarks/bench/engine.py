"""A search of `tandem.Engine` compared with the same arithmetic by hand, each in its own process.

    python -m benchmarks.bench.engine [--precision bf16] [--scenes 100] [--queries 50] [--rounds 4]

Both sides run the same exported TorchScript on the same cores over the same items: tokenize, embed
the text, search FAISS flat, score 20 pairs, sort. Their processes live side by side and take turns
in rounds, each in turn the first, so that another load on the machine hits both; only their ratio
says something. In one process they would disturb each other: torch's threads keep a core busy for
milliseconds after the search that they served. `taskset -c 0` gives both a single core. Caches are
off. Both sides have the C library's allocator as the engine sets it.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.support.device_search import K
from benchmarks.support.in_process import RETURN_N, InProcess
from tandem import Engine
from tandem.chassis.process.memory import keep_activations
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.triton.install import core_count

_INDEX: Final = "bench"
_WARM_COUNT: Final = 10

Search = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Round:
    """Holds what one side needed for each query of a round, and what it found."""

    wall_ms: list[float]
    cpu_ms: list[float]
    found: list[list[str]]


@dataclass
class Times:
    """Collects a side's times: of the clock, and of all processors together."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def add(self, measured: Round) -> None:
        """Adds a round's times."""
        self.wall_ms += measured.wall_ms
        self.cpu_ms += measured.cpu_ms


@contextmanager
def _engine(folder: Path, _: Manifest, records: Sequence[Record]) -> Iterator[Search]:
    with Engine(folder / "data", model=folder / "models", caches=False) as engine:
        pictures = ((record.record_id, record.image.read()) for record in records)
        refused = [each for each in engine.ingest(pictures, index_id=_INDEX) if each.error]
        assert not refused, refused[0].error

        def search(text: str) -> list[str]:
            found = engine.search(text, index_id=_INDEX, retrieve_k=K, rerank_k=K)
            return [item.item_id for item in found.items]

        yield search


@contextmanager
def _by_hand(folder: Path, manifest: Manifest, records: Sequence[Record]) -> Iterator[Search]:
    keep_activations()
    side = InProcess(folder / "models", manifest, core_count())
    side.add(records)
    yield side.search


_SIDES: Final = {"engine": _engine, "by_hand": _by_hand}


def _serve(
    side: str, folder: Path, manifest: Manifest, scene_count: int, asked: Connection
) -> None:
    """Measures each list of queries that arrives, until an empty one."""
    records = list(scene_records("test", 3, scene_count))
    with _SIDES[side](folder, manifest, records) as search:
        while queries := asked.recv():
            asked.send(_measured(search, queries))


def _measured(search: Search, queries: Sequence[str]) -> Round:
    measured = Round([], [], [])
    for text in queries:
        wall, cpu = time.perf_counter(), time.process_time()
        measured.found.append(search(text))
        measured.cpu_ms.append(1e3 * (time.process_time() - cpu))
        measured.wall_ms.append(1e3 * (time.perf_counter() - wall))
    return measured


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, arguments.scenes))
    queries = [records[n % len(records)].captions[n % 3].text for n in range(arguments.queries)]
    precision = Precision(arguments.precision or native_precision())
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        manifest = export_model(default_checkpoint(), folder / "models", precision)
        sides = {
            side: opened.enter_context(_side(side, folder, manifest, arguments.scenes))
            for side in _SIDES
        }
        for each in sides.values():
            _asked(each, queries[:_WARM_COUNT])
        times, shared, round_ratios = _rounds(sides, queries, arguments.rounds)
    ratios = {
        name: statistics.median(getattr(times["engine"], name))
        / statistics.median(getattr(times["by_hand"], name))
        for name in ("wall_ms", "cpu_ms")
    }
    return {
        "benchmark": "engine",
        "precision": precision,
        "cores": core_count(),
        "load_average": os.getloadavg()[0],
        "scenes": arguments.scenes,
        "queries": len(queries),
        "rounds": arguments.rounds,
        "answers_shared": shared,
        "ratio_of_p50": ratios["wall_ms"],
        "ratio_of_cpu": ratios["cpu_ms"],
        "median_of_ratios": statistics.median(round_ratios),
        "sides": {name: _figures(each) for name, each in times.items()},
    }


@contextmanager
def _side(side: str, folder: Path, manifest: Manifest, scene_count: int) -> Iterator[Connection]:
    """Yields the way to ask a side, which runs in a process of its own."""
    here, there = multiprocessing.Pipe()
    # A forked child would have the locks of torch's threads, but not the threads.
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(side, folder, manifest, scene_count, there)
    )
    process.start()
    there.close()
    try:
        yield here
        here.send([])
    finally:
        here.close()
        process.join()


def _asked(side: Connection, queries: Sequence[str]) -> Round:
    side.send(queries)
    measured: Round = side.recv()
    return measured


def _rounds(
    sides: Mapping[str, Connection], queries: Sequence[str], count: int
) -> tuple[dict[str, Times], float, list[float]]:
    """Returns each side's times, the share of items that both find, and each round's ratio."""
    times = {name: Times() for name in sides}
    shares: list[float] = []
    ratios: list[float] = []
    for number in range(count):
        order = list(sides) if number % 2 else list(sides)[::-1]
        rounds = {name: _asked(sides[name], queries) for name in order}
        for name, measured in rounds.items():
            times[name].add(measured)
        engine, by_hand = rounds["engine"], rounds["by_hand"]
        shares += [
            len(set(one) & set(other)) / RETURN_N
            for one, other in zip(engine.found, by_hand.found, strict=True)
        ]
        ratios.append(statistics.median(engine.wall_ms) / statistics.median(by_hand.wall_ms))
    return times, statistics.mean(shares), ratios


def _figures(times: Times) -> dict[str, float]:
    return {
        "p10_ms": sorted(times.wall_ms)[len(times.wall_ms) // 10],
        "p50_ms": statistics.median(times.wall_ms),
        "cpu_p10_ms": sorted(times.cpu_ms)[len(times.cpu_ms) // 10],
        "cpu_p50_ms": statistics.median(times.cpu_ms),
    }


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    sides = result["sides"]
    assert isinstance(sides, dict)
    rows = ["| side | p10 ms | p50 ms | CPU, p10 ms | CPU, p50 ms |", "| --- |" + " ---: |" * 4]
    for name, each in sides.items():
        figures = " | ".join(f"{value:.1f}" for value in each.values())
        rows.append(f"| {name.replace('_', ' ')} | {figures} |")
    rows.append(
        f"| engine : by hand | | {result['ratio_of_p50']:.2f} | | {result['ratio_of_cpu']:.2f} |"
    )
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="an engine's search against the same by hand")
    parser.add_argument("--precision", choices=tuple(Precision), default=None)
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
