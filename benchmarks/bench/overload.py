"""Searches past capacity: the limit is found in steps, then 2, 5 and 10 times of it.

    python -m benchmarks.bench.overload [--door http] [--seconds 60] [--step-seconds 20]
        [--sender-core N]

The whole system on this machine, searches from `open_loop.py` in a process of its own. Capacity is
the most searches a second that were answered while any step was sent; steps grow by a fourth until
less than nine tenths of a step's searches are. After each overload, half of the capacity for ten
seconds shows whether the system is itself again. `--sender-core` pins the sender to a core, the
services to the others. With `--door http` all searches go through the gateway.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.support.loads.growth import with_descendants
from benchmarks.support.stored_pictures import store_pictures
from tandem.corpus.scenes.records import scene_records
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.stack import LocalStack, Ports

INDEX_ID = "bench"
FACTORS = (2, 5, 10)
FIRST_RATE = 8.0
STEP_GROWTH = 1.25
ANSWERED_SHARE = 0.9
AFTER_SECONDS = 10.0
RECOVERY_SECONDS = 5

Row = dict[str, Any]


class Sender:
    """Runs `open_loop.py` against one address."""

    def __init__(
        self,
        address: str,
        texts: Sequence[str],
        deadline: float,
        core: int | None,
        index_id: str = INDEX_ID,
    ) -> None:
        self._address = address
        self._index_id = index_id
        self._texts = "\n".join(texts)
        self._deadline = deadline
        self._core = core

    def send(self, rate: float, seconds: float) -> Row:
        """Returns what became of `rate` searches a second."""
        pin = [] if self._core is None else ["taskset", "-c", str(self._core)]
        done = subprocess.run(
            [
                *(*pin, sys.executable, "-m", "benchmarks.support.loads.open_loop"),
                *(self._address, self._index_id, "--rate", str(rate), "--seconds", str(seconds)),
                *("--deadline", str(self._deadline)),
            ],
            input=self._texts,
            capture_output=True,
            text=True,
            check=True,
        )
        row: Row = json.loads(done.stdout)
        return row


class Memory:
    """Samples the resident bytes of processes and what they have as children."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._ended = threading.Event()
        self.peak_bytes = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notes the peak while it is entered."""
        self.peak_bytes = self.resident_bytes()
        self._ended.clear()
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def resident_bytes(self) -> int:
        """Returns what all of them have resident now; pages they share count for each."""
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return page_bytes * sum(map(_resident_pages, with_descendants(self._pids)))

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.peak_bytes = max(self.peak_bytes, self.resident_bytes())


def _resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0


def find_capacity(sender: Sender, step_seconds: float) -> tuple[float, list[Row]]:
    """Returns the most searches answered a second, and each step."""
    rows: list[Row] = []
    rate = FIRST_RATE
    while True:
        row = sender.send(round(rate, 2), step_seconds)
        rows.append(row)
        if row["ok_per_second"] < ANSWERED_SHARE * rate:
            return max(each["ok_per_second"] for each in rows), rows
        rate *= STEP_GROWTH


def run(arguments: argparse.Namespace) -> Row:
    """Returns the whole result."""
    records = list(scene_records("test", 3, arguments.scenes))
    texts = [caption.text for record in records for caption in record.captions]
    cores = os.sched_getaffinity(0)
    if arguments.sender_core is not None:
        os.sched_setaffinity(0, cores - {arguments.sender_core})  # inherited by the services
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        manifest = export_if_stale(default_checkpoint(), repository)
        data_folder, is_http = Path(folder) / "data", arguments.door == "http"
        with LocalStack(
            data_folder, repository, Ports.free(2), caches=False, gateway=is_http
        ) as stack:
            stack.start()
            store_pictures(stack.address, INDEX_ID, records)
            address = stack.http_url or stack.address
            sender = Sender(address, texts, arguments.deadline, arguments.sender_core)
            sender.send(FIRST_RATE / 2, 5.0)  # warm
            capacity, steps = find_capacity(sender, arguments.step_seconds)
            memory = Memory([endpoint.pid for endpoint in stack.endpoints()])
            overloads = []
            for factor in FACTORS:
                before_bytes = memory.resident_bytes()
                with memory.watched():
                    row = sender.send(round(factor * capacity, 2), arguments.seconds)
                after = sender.send(round(capacity / 2, 2), AFTER_SECONDS)
                overloads.append(_judged(row, factor, capacity, before_bytes, memory, after))
    return {
        "benchmark": "overload",
        "door": arguments.door,
        "scenes": arguments.scenes,
        "seconds": arguments.seconds,
        "deadline_seconds": arguments.deadline,
        "cores": len(cores),
        "sender_core": arguments.sender_core,
        "model": manifest.fingerprint[:12],
        "precision": manifest.precision,
        "capacity_per_second": capacity,
        "steps": [_without_seconds(step) for step in steps],
        "overloads": overloads,
    }


def _judged(
    row: Row, factor: int, capacity: float, before_bytes: int, memory: Memory, after: Row
) -> Row:
    late_failures = sum(
        count
        for second, count in after["failed_in_second"].items()
        if int(second) >= RECOVERY_SECONDS
    )
    return _without_seconds(row) | {
        "factor": factor,
        "goodput_of_capacity": round(row["ok_per_second"] / capacity, 3),
        "memory_before_mb": round(before_bytes / 1e6),
        "memory_peak_ratio": round(memory.peak_bytes / before_bytes, 3),
        "after_codes": after["codes"],
        "after_failures_past_5_s": late_failures,
        "after_ok_p99_ms": after["ok_p99_ms"],
    }


def _without_seconds(row: Row) -> Row:
    return {key: value for key, value in row.items() if not key.endswith("_in_second")}


def table(result: Row) -> str:
    """Returns the figures as Markdown."""
    rows = [
        f"Capacity: {result['capacity_per_second']} searches/s.",
        "",
        "| load | goodput / C | OK p99 ms | refused p99 ms | codes | peak memory / before "
        "| failures later than 5 s after |",
        "| ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    rows += [
        f"| {each['factor']} C | {each['goodput_of_capacity']} | {each['ok_p99_ms']} "
        f"| {each['refused_p99_ms']} "
        f"| {', '.join(f'{name} {n}' for name, n in each['codes'].items())} "
        f"| {each['memory_peak_ratio']} | {each['after_failures_past_5_s']} |"
        for each in result["overloads"]
    ]
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="searches past capacity")
    parser.add_argument("--door", choices=("grpc", "http"), default="grpc")
    parser.add_argument("--scenes", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each overload")
    parser.add_argument("--step-seconds", type=float, default=20.0, help="of each step up to C")
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds a search may take")
    parser.add_argument("--sender-core", type=int, help="core for the sender alone")
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
