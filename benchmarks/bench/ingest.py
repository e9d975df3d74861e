"""Pictures a second that an ingest stores, and how many it loses, by batches encoded at once.

    python -m benchmarks.bench.ingest [--model large] [--pictures 1024] [--batches 2,4] [--rounds 2]
                                      [--beside 2]

Every round starts a new local system of one shard for each setting in turn. `--beside` keeps so
many other processes computing meanwhile: what a shared machine leaves of its cores. A picture is
lost if the answer for it is an error; its item is not stored then.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.large_model import export_large
from tandem.client import Client
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.precision import native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.stack import LocalStack, Ports

WARM_UP_COUNT = 32
TIMEOUT_SECONDS = 300.0

Picture = tuple[str, bytes]


@dataclass(frozen=True)
class Ingested:
    """One ingest."""

    pictures_per_second: float
    lost_count: int


def main() -> None:
    """Prints a row for each setting, and one line of JSON."""
    parser = argparse.ArgumentParser(description="pictures a second of an ingest")
    parser.add_argument("--model", choices=("default", "large"), default="default")
    parser.add_argument("--pictures", type=int, default=1024, help="a multiple of 4")
    parser.add_argument("--batches", default="1,2,4", help="encoded at once, by commas")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--beside", type=int, default=0, help="processes that compute meanwhile")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.batches.split(",")]
    pictures = [
        (record.record_id, record.image.read())
        for record in scene_records("test", 3, arguments.pictures)
    ]
    runs: dict[int, list[Ingested]] = {count: [] for count in counts}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        repository = Path(folder) / "model_repository"
        if arguments.model == "large":
            export_large(repository, native_precision())
        else:
            export_if_stale(default_checkpoint(), repository)
        for number in range(arguments.rounds):
            for count in counts:
                with company(arguments.beside):
                    place = Path(folder) / f"{number}-{count}"
                    runs[count].append(run(place, repository, count, pictures))
    print("| batches at once | pictures/s, median | of each round | lost |")
    print("| ---: | ---: | --- | ---: |")
    for count, done in runs.items():
        rates = [each.pictures_per_second for each in done]
        lost = ", ".join(str(each.lost_count) for each in done)
        shown = ", ".join(f"{rate:.1f}" for rate in rates)
        print(f"| {count} | {statistics.median(rates):.1f} | {shown} | {lost} |")
    results = {count: [vars(each) for each in done] for count, done in runs.items()}
    about = {"benchmark": "ingest", "cores": os.cpu_count(), "precision": native_precision().value}
    print(json.dumps(about | vars(arguments) | {"runs": results}))


def run(folder: Path, repository: Path, count: int, pictures: Sequence[Picture]) -> Ingested:
    """Returns the rates of one ingest, with `count` batches encoded at once."""
    settings = {"ORCHESTRATOR_INGEST_ENCODE_BATCH_COUNT": str(count)}
    stack = LocalStack(folder, repository, Ports.free(shard_count=1), settings=settings)
    with stack:
        stack.start()
        with Client(stack.address, timeout_seconds=TIMEOUT_SECONDS) as client:
            list(client.ingest(pictures[:WARM_UP_COUNT], index_id="warm-up"))
            start_time = time.monotonic()
            outcomes = list(client.ingest(pictures, index_id="bench"))
            seconds = time.monotonic() - start_time
    return Ingested(
        round(len(pictures) / seconds, 2), sum(each.error is not None for each in outcomes)
    )


@contextmanager
def company(count: int) -> Iterator[None]:
    """Keeps so many processes computing until the end of the block."""
    processes = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _compute() -> None:
    while True:
        pass


if __name__ == "__main__":
    main()
