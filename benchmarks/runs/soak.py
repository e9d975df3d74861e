"""Measures whether memory, files, threads or /dev/shm grow during long searches and writes.

    python -m benchmarks.runs.soak [--minutes 20]    # 120 before a release
    python -m benchmarks.runs.soak --minutes 3       # short: memory is reported, not judged

A whole Tandem on this machine with a small model, without caches, which fill for hours and are
meant to. Searches at a steady rate, of which one in a hundred is cancelled by its caller, and items
that are written over and over. Every process is looked at once a second, Triton's own too. Prints a
row a process; exits 1 where one of them grows after the warm-up, which is half as long again, by
more than 2 MB an hour, or by any file or thread of ours that stays, where /dev/shm grows, or where
a search failed.
"""

import argparse
import itertools
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.support.loads.growth import (
    WARM_UP_SHARE,
    Growth,
    Sample,
    children,
    growth_of,
    region_prefix,
    sample,
    shared_memory_bytes,
    table,
)
from benchmarks.support.loads.sending import sending
from benchmarks.support.small_model import save_small, short_texts
from benchmarks.support.stored_pictures import store_pictures
from tandem.client import Client
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.stack.stack import LocalStack, Ports

INDEX_ID = "soak"
CANCELLED_SHARE = "0.01"
WRITE_PAUSE_SECONDS = 0.5
BATCH_SIZE = 8
# Before, what is kept once is still being filled: each process grows by a few hundred kilobytes.
LEAST_MINUTES = 10


@contextmanager
def writing(address: str, records: Sequence[Record]) -> Iterator[list[str]]:
    """Writes the pictures over and over while entered; yields a list of what went wrong."""
    ended, wrong = threading.Event(), list[str]()
    pictures = itertools.cycle([(r.record_id, r.image.read()) for r in records])

    def write() -> None:
        with Client(address, timeout_seconds=30.0) as client:
            while not ended.wait(WRITE_PAUSE_SECONDS):
                batch = itertools.islice(pictures, BATCH_SIZE)
                outcomes = client.ingest(batch, index_id=INDEX_ID)
                wrong.extend(str(o.error) for o in outcomes if o.error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield wrong
    finally:
        ended.set()
        thread.join()


def watch(pids: dict[str, int], prefix: str, seconds: float) -> tuple[list[Growth], list[int]]:
    """Looks at the processes once a second; returns their growth, and the bytes of /dev/shm."""
    samples: dict[str, list[Sample]] = {name: [] for name in pids}
    shared_bytes = []
    end_time = time.monotonic() + seconds
    while time.monotonic() < end_time:
        for name, pid in pids.items():
            samples[name].append(sample(pid))
        shared_bytes.append(shared_memory_bytes(prefix))
        time.sleep(1.0)
    return [growth_of(name, seen) for name, seen in samples.items()], shared_bytes


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, 100))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = folder / "model_repository"
        export_model(save_small(folder / "checkpoint"), repository, Precision.FP32)
        stack = LocalStack(folder / "data", repository, Ports.free(2), caches=False)
        with stack:
            stack.start()
            pids = {each.name: each.pid for each in stack.endpoints()}
            stubs = children(pids["triton"])
            pids |= {f"triton {model} {pid}": pid for pid, model in stubs.items()}
            prefix = region_prefix(next(iter(stubs)))
            store_pictures(stack.address, INDEX_ID, records)
            with (
                writing(stack.address, records) as wrong,
                sending(
                    stack.address,
                    INDEX_ID,
                    short_texts(records),
                    arguments.rate,
                    *("--cancel-share", CANCELLED_SHARE),
                ) as load,
            ):
                seconds = 60 * arguments.minutes / (1 - WARM_UP_SHARE)
                growths, shared_bytes = watch(pids, prefix, seconds)
    return {
        "run": "soak",
        "minutes": arguments.minutes,
        "rate": arguments.rate,
        "growth": [asdict(each) for each in growths],
        "shared_memory_mb": [shared_bytes[len(shared_bytes) // 2] / 1e6, shared_bytes[-1] / 1e6],
        "failed_writes": wrong[:10],
        **load.seen,
    }


def faults(result: dict[str, Any]) -> list[str]:
    """Returns what should not be."""
    failed = {name: n for name, n in result["failed"].items() if name != "cancelled by us"}
    found = [f"{count} searches: {name}" for name, count in failed.items()]
    found += result["failed_writes"]
    for each in result["growth"]:
        growth = Growth(**each)
        if result["minutes"] < LEAST_MINUTES:
            growth = replace(growth, mb_an_hour=0.0)
        found += growth.faults()
    middle, last = result["shared_memory_mb"]
    if last > middle:
        found.append(f"/dev/shm grew from {middle:.1f} to {last:.1f} MB")
    return found


def main() -> None:
    """Prints one JSON line, a table, and what is wrong; exits 1 where anything is."""
    parser = argparse.ArgumentParser(description="searches and writes for long")
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="after a warm-up of half as many"
    )
    parser.add_argument("--rate", type=float, default=20.0, help="searches a second")
    # Otherwise what is started here would outlive a run that is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table([Growth(**each) for each in result["growth"]]))
    found = faults(result)
    is_judged = result["minutes"] >= LEAST_MINUTES
    print("\n".join(found) or ("nothing grows" if is_judged else "memory is not judged so soon"))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
