"""The first searches after a start, beside those of a system that has long been asked.

    python benchmarks/bench_cold_start.py [--starts 5] [--scenes 200]

The default model and one shard are started again and again over the same items. As soon as the
orchestrator says SERVING one client asks 50 different texts, then 200 more. What a model has to
find out about a shape of input, it should have found out before: goal is a p99 of the first 50 of
at most twice the later ones'.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tandem.client import Client
from tandem.corpus.scenes.records import scene_records
from tandem.local.stack import LocalStack, Ports
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale

FIRST_COUNT, LATER_COUNT = 50, 200
INDEX_ID = "bench"
TIMEOUT_SECONDS = 60.0


def run(start_count: int, scene_count: int, work: Path) -> dict[str, Any]:
    """Returns the figures of every start and the medians of all."""
    repository = work / "models"
    manifest = export_if_stale(default_checkpoint(), repository)
    records = list(scene_records("test", 3, scene_count))
    texts = [caption.text for record in records for caption in record.captions]
    if len(texts) < FIRST_COUNT + LATER_COUNT:
        raise SystemExit(f"{scene_count} scenes have {len(texts)} captions; take more scenes")
    starts = []
    for number in range(start_count + 1):
        # Without caches, so that every search is computed.
        with LocalStack(work / "data", repository, Ports.free(1), caches=False) as stack:
            stack.start()
            with Client(stack.address, timeout_seconds=TIMEOUT_SECONDS) as client:
                if number == 0:
                    pictures = [(each.record_id, each.image.read()) for each in records]
                    refused = [o for o in client.ingest(pictures, index_id=INDEX_ID) if o.error]
                    assert not refused, refused[0].error
                    continue
                starts.append(measure(client, texts))
    return {
        "benchmark": "cold_start",
        "precision": manifest.precision,
        "starts": starts,
        "medians": {name: statistics.median(each[name] for each in starts) for name in starts[0]},
    }


def measure(client: Client, texts: Sequence[str]) -> dict[str, float]:
    """Returns milliseconds of the first searches and of those after them."""
    taken_ms = []
    for text in texts[: FIRST_COUNT + LATER_COUNT]:
        start_time = time.perf_counter()
        client.search(text, index_id=INDEX_ID)
        taken_ms.append(1e3 * (time.perf_counter() - start_time))
    first, later = taken_ms[:FIRST_COUNT], taken_ms[FIRST_COUNT:]
    first_p99, later_p99 = (float(np.percentile(part, 99)) for part in (first, later))
    return {
        "very_first_ms": first[0],
        "first_p50_ms": statistics.median(first),
        "first_p99_ms": first_p99,
        "later_p50_ms": statistics.median(later),
        "later_p99_ms": later_p99,
        "p99_ratio": first_p99 / later_p99,
    }


def table(result: dict[str, Any]) -> str:
    """Returns the figures as Markdown."""
    names = list(result["medians"])
    lines = [
        "| start | " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "| --- |" + " ---: |" * len(names),
    ]
    labelled = [*enumerate(result["starts"], 1), ("median", result["medians"])]
    lines += [
        f"| {label} | " + " | ".join(f"{figures[name]:.2f}" for name in names) + " |"
        for label, figures in labelled
    ]
    return "\n".join(lines)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="the first searches after a start")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--scenes", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        result = run(arguments.starts, arguments.scenes, Path(folder))
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
