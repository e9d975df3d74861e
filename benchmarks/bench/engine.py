"""A search of `tandem.Engine` compared with the same arithmetic by hand, both in this process.

    python -m benchmarks.bench.engine [--precision fp32|bf16] [--scenes 100] [--queries 100]

Both sides run the same exported TorchScript on the same cores over the same items: tokenize, embed
the text, search FAISS flat, score 20 pairs, sort. They take turns query by query, the first of each
turn changing, so that another load on the machine hits both; only their ratio says something.
`taskset -c 0` gives both a single core. Caches are off. The engine sets the C library's allocator
for the whole process, so the side by hand has that too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.support.in_process import RETURN_N, InProcess, K
from tandem import Engine
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.precision import Precision, native_precision
from tandem.model_io.triton_install import core_count
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model

_INDEX = "bench"
_WARM_COUNT = 10

Search = Callable[[str], list[str]]


@dataclass
class Times:
    """Collects the times of one side's searches: of the clock, and of all processors together."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def measure(self, search: Search, text: str) -> list[str]:
        """Returns what the search finds, and notes how long it takes."""
        wall, cpu = time.perf_counter(), time.process_time()
        found = search(text)
        self.cpu_ms.append(1e3 * (time.process_time() - cpu))
        self.wall_ms.append(1e3 * (time.perf_counter() - wall))
        return found


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, arguments.scenes))
    queries = [records[n % len(records)].captions[n % 3].text for n in range(arguments.queries)]
    precision = Precision(arguments.precision or native_precision())
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        manifest = export_model(default_checkpoint(), repository, precision)
        with Engine(Path(folder) / "data", model=repository, caches=False) as engine:
            pictures = ((record.record_id, record.image.read()) for record in records)
            refused = [each for each in engine.ingest(pictures, index_id=_INDEX) if each.error]
            assert not refused, refused[0].error
            by_hand = InProcess(repository, manifest, core_count())
            by_hand.add(records)

            def search(text: str) -> list[str]:
                found = engine.search(text, index_id=_INDEX, retrieve_k=K, rerank_k=K)
                return [item.item_id for item in found.items]

            sides = {"engine": search, "by_hand": by_hand.search}
            for text in queries[:_WARM_COUNT]:
                for each in sides.values():
                    each(text)
            times, shared = _turns(sides, queries)
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
        "answers_shared": shared,
        "ratio_of_p50": ratios["wall_ms"],
        "ratio_of_cpu": ratios["cpu_ms"],
        "median_of_ratios": statistics.median(
            one / other
            for one, other in zip(times["engine"].wall_ms, times["by_hand"].wall_ms, strict=True)
        ),
        "sides": {name: _figures(each) for name, each in times.items()},
    }


def _turns(sides: Mapping[str, Search], queries: Sequence[str]) -> tuple[dict[str, Times], float]:
    """Returns each side's times, and the share of items that both find."""
    times = {name: Times() for name in sides}
    shares = []
    for number, text in enumerate(queries):
        order = list(sides) if number % 2 else list(sides)[::-1]
        found = {name: times[name].measure(sides[name], text) for name in order}
        one, other = found.values()
        shares.append(len(set(one) & set(other)) / RETURN_N)
    return times, statistics.mean(shares)


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
    parser.add_argument("--queries", type=int, default=100)
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
