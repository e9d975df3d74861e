"""Restarts every service in turn, again and again, during searches: none may fail.

    python -m benchmarks.runs.rolls [--rolls 10] [--rate 50]
    python -m benchmarks.runs.rolls --rolls 1    # the short form

A whole Tandem on this machine with a small model: two orchestrators, two encoders, two shards of an
index_svc and a rerank_svc each, which have no replica. A roll restarts all eight, one after the
other, as an update would: SIGTERM, wait for the end, start, wait until it serves, and a pause in
which callers connect to it again. The SDK and the orchestrators know all addresses of what they
call. Exits 1 unless no search failed, and answers were less than whole only while a shard's process
was away, and said so.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.loads.sending import sending
from benchmarks.support.small_model import save_small, short_texts
from benchmarks.support.stored_pictures import store_pictures
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.stack.stack import LocalStack, Ports

INDEX_ID = "rolls"
START_SECONDS = 60.0
# A channel tries a replica that was away again after 1.2 s at most.
PAUSE_SECONDS = 2.0
SHARDS = ("index", "rerank")
SETTINGS = {
    # One of two has to take what both do, while a process that starts fills one of the cores: with
    # the default of 32 it refused 75 searches of 14,593, by name.
    "ORCHESTRATOR_MAX_INFLIGHT_COUNT": "128",
}


@dataclass(frozen=True)
class Restart:
    """One process ended and started again, by the day's clock."""

    name: str
    stop_time: float
    drain_seconds: float
    end_time: float
    """Serving, and the pause is over."""


def restart(stack: LocalStack, name: str) -> Restart:
    """Restarts one service; raises StackFailed where it does not end with 0, or serve again."""
    stop_time = time.time()
    drain_seconds = stack.stop_service(name)
    stack.start_service(name)
    stack.wait_until_serving(name, time.monotonic() + START_SECONDS)
    time.sleep(PAUSE_SECONDS)
    return Restart(name, stop_time, drain_seconds, time.time())


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, 100))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = folder / "model_repository"
        export_model(save_small(folder / "checkpoint"), repository, Precision.FP32)
        ports = Ports.free(shard_count=2, replica_count=2)
        with LocalStack(folder / "data", repository, ports, settings=SETTINGS) as stack:
            stack.start()
            store_pictures(stack.address, INDEX_ID, records)
            start_time = time.monotonic()
            with sending(stack.address, INDEX_ID, short_texts(records), arguments.rate) as load:
                time.sleep(PAUSE_SECONDS)
                restarts = [
                    restart(stack, name)
                    for _ in range(arguments.rolls)
                    for name in stack.service_names()
                ]
                while (time.monotonic() - start_time) * arguments.rate < arguments.least_searches:
                    time.sleep(1.0)
            seconds = time.monotonic() - start_time
    return {
        "run": "rolls",
        "rolls": arguments.rolls,
        "rate": arguments.rate,
        "seconds": round(seconds),
        "restarts": [asdict(each) for each in restarts],
        **load.seen,
    }


def faults(result: dict[str, Any]) -> list[str]:
    """Returns what should not be."""
    found = [f"{count} searches: {name}" for name, count in result["failed"].items()]
    found += [note for notes in result["failure_notes"].values() for note in notes]
    if result["unflagged"]:
        found.append(f"{result['unflagged']} answers were less than whole and did not say so")
    if result["ok"] < 0.95 * result["rate"] * result["seconds"] - 5 * result["rate"]:
        found.append(f"only {result['ok']} searches in {result['seconds']} s: too few were sent")
    found += [
        f"{count} degraded answers in second {second}, when no shard's process was away"
        for second, count in result["degraded_in_second"].items()
        if not _is_shard_away(int(second), result["restarts"])
    ]
    return found


def _is_shard_away(second: int, restarts: Sequence[dict[str, Any]]) -> bool:
    return any(
        each["name"].startswith(SHARDS) and each["stop_time"] - 1 <= second <= each["end_time"]
        for each in restarts
    )


def main() -> None:
    """Prints one JSON line and what is wrong; exits 1 where anything is."""
    parser = argparse.ArgumentParser(description="every service restarted under load")
    parser.add_argument("--rolls", type=int, default=10)
    parser.add_argument("--rate", type=float, default=50.0, help="searches a second")
    parser.add_argument(
        "--least-searches", type=int, default=0, help="continue until so many were sent"
    )
    # Otherwise what is started here would outlive a run that is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = run(parser.parse_args())
    print(json.dumps(result))
    found = faults(result)
    print("\n".join(found) or f"no search of {result['ok']} failed")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
