"""Ingests a table of many texts while command, shards and orchestrator are killed.

    python -m benchmarks.runs.ingest_kills [--rows 100000] [--kills 20] [--plain 10000]
    python -m benchmarks.runs.ingest_kills --rows 4000 --kills 5 --plain 1000    # the short form

A whole Tandem on this machine with the bundled model, two shards and no caches. First the encoder
alone and `tandem ingest` take turns over `--plain` rows each, which gives the ingest's share of the
raw rate. Then `tandem ingest` stores `--rows` rows and is started again after each `kill -9` of
itself; shards and the orchestrator are killed and started in turn. At the end every id of the
index, and the text and the number of every hundredth row, are compared with the table.

Prints one JSON line, and exits 1 where the index differs or a kill wasted more than two batches.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.runs.library_sync import WASTED_COUNT, encoded_count
from benchmarks.support.loads.growth import sample
from tandem.client import Client
from tandem.contract.content import content_bytes
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import content_pb2, encoder_service_pb2, encoder_service_pb2_grpc

_BATCH_SIZE: Final = 64
_RAW_THREAD_COUNT: Final = 2
_VICTIMS: Final = ("command", "index-0", "command", "orchestrator", "index-1")
_PART_COUNT: Final = 5
_WORDS: Final = ("red", "green", "small", "cup", "dog", "bird", "house", "car", "left", "above")


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yields rows of a table, each with a text of its own."""
    rng = random.Random(0)
    for number in range(count):
        words = " ".join(rng.choices(_WORDS, k=8))
        yield {"id": f"row-{number:06}", "text": f"{words} {number}", "number": number}


def raw_rate(address: str, count: int) -> float:
    """Returns the texts a second that the encoder encodes for two callers."""
    texts = [row["text"] for row in rows(count)]
    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(_RAW_THREAD_COUNT) as pool:
        stub = encoder_service_pb2_grpc.EncoderServiceStub(channel)

        def encode(start: int) -> None:
            contents = [content_pb2.Content(text=text) for text in texts[start:][:_BATCH_SIZE]]
            request = encoder_service_pb2.EncodeContentsRequest(contents=contents)
            answer = stub.EncodeContents(request, timeout=120)
            assert all(result.HasField("encoding") for result in answer.results)

        begin_time = time.monotonic()
        list(pool.map(encode, range(0, count, _BATCH_SIZE)))
        return count / (time.monotonic() - begin_time)


class Run:
    """Ingests of one Tandem, and the memory of its processes meanwhile."""

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.rng = random.Random(0)
        self.mib: dict[str, list[float]] = {}
        """Resident MiB by process, every few seconds, without mapped files."""
        self.said = ""

    def start(self, count: int, index_id: str) -> subprocess.Popen[str]:
        """Starts an ingest of the first rows."""
        table = self.folder / f"{index_id}.jsonl"
        if not table.exists():
            table.write_text("".join(json.dumps(row) + "\n" for row in rows(count)))
        words = ["ingest", str(table), "--index", index_id, "--address", self.stack.address]
        return subprocess.Popen(
            [sys.executable, "-m", "tandem.cli", *words],
            env={**os.environ, "XDG_STATE_HOME": str(self.folder / "state")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def rate(self, count: int, index_id: str) -> float:
        """Returns the rows a second of one ingest, with the start of its process."""
        begin_time = time.monotonic()
        process = self.start(count, index_id)
        said = process.communicate()[0]
        assert process.returncode == 0, said
        return count / (time.monotonic() - begin_time)

    def killed(self, count: int, kill_count: int, pause_seconds: float) -> float:
        """Ingests all rows under kills, about `pause_seconds` apart; returns the seconds."""
        begin_time, process, number = time.monotonic(), None, 0
        while process is None or process.poll() is None or process.returncode:
            if process is None or process.poll() is not None:
                self.said += process.communicate()[0] if process else ""
                process = self.start(count, "killed")
            end_time = time.monotonic() + self.rng.uniform(0.5, 1.5) * pause_seconds
            while time.monotonic() < end_time and process.poll() is None:
                self._look(process.pid)
                time.sleep(2.0)
            if number == kill_count or process.poll() is not None:
                continue
            victim = _VICTIMS[number % len(_VICTIMS)]
            number += 1
            if victim == "command":
                process.kill()
            else:
                self.stack.kill_service(victim)
                time.sleep(self.rng.uniform(0.0, 3.0))
                self.stack.start_service(victim)
                self.stack.wait_until_serving(victim, time.monotonic() + 120)
        self.said += process.communicate()[0]
        assert number == kill_count, f"it ended after {number} kills: take more rows"
        return time.monotonic() - begin_time

    def differing(self, count: int) -> list[str]:
        """Returns ids that the index lacks, has too many, or, of every 100th, has otherwise."""
        expected = {row["id"]: row for row in rows(count)}
        with Client(self.stack.address, timeout_seconds=60) as client:
            ids = {each.item_id for each in client.list_items(index_id="killed")}
            wrong = ids ^ expected.keys()
            looked_at = sorted(expected.keys() & ids)[::100]
            found = [
                item
                for start in range(0, len(looked_at), _BATCH_SIZE)
                for item in client.fetch_items(
                    looked_at[start : start + _BATCH_SIZE], index_id="killed"
                )
            ]
        wrong |= set(looked_at) ^ {item.item_id for item in found}
        for item in found:
            row = expected[item.item_id]
            text = content_bytes(item.content).decode() if item.content else ""
            if (text, item.attributes.get("number")) != (row["text"], row["number"]):
                wrong.add(item.item_id)
        return sorted(wrong)

    def _look(self, command_pid: int) -> None:
        pids = {each.name: each.pid for each in self.stack.endpoints()} | {"command": command_pid}
        for name, pid in pids.items():
            with contextlib.suppress(OSError, ValueError):  # It has ended.
                self.mib.setdefault(name, []).append(sample(pid).resident_bytes / 2**20)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the result."""
    with tempfile.TemporaryDirectory(dir=arguments.work) as name:
        folder = Path(name)
        repository = folder / "model_repository"
        export_if_stale(default_checkpoint(), repository)
        with LocalStack(folder / "data", repository, Ports.free(2), caches=False) as stack:
            stack.start()
            ran = Run(stack, folder)
            encoder = next(e.address for e in stack.endpoints() if e.name == "encoder")
            turns = [
                (raw_rate(encoder, arguments.plain), ran.rate(arguments.plain, f"plain-{n}"))
                for n in range(arguments.rounds)
            ]
            rate = statistics.median(ingest for _, ingest in turns)
            pause = arguments.rows / rate / (1.5 * arguments.kills + 2)
            before = encoded_count(stack)
            seconds = ran.killed(arguments.rows, arguments.kills, pause)
            differing = ran.differing(arguments.rows)
            return {
                "run": "ingest under kills",
                **{key: getattr(arguments, key) for key in ("rows", "kills", "plain")},
                "raw_rates": [round(raw) for raw, _ in turns],
                "ingest_rates": [round(ingest) for _, ingest in turns],
                "share_of_raw": round(statistics.median(i / raw for raw, i in turns), 2),
                "seconds": round(seconds),
                "encoded_count": encoded_count(stack) - before,
                "differing_count": len(differing),
                "differing": differing[:3],
                # The highest of each fifth of the time.
                "mib": {
                    name: [round(max(part)) for part in fifths(seen)]
                    for name, seen in ran.mib.items()
                    if len(seen) >= _PART_COUNT
                },
                "last_said": ran.said.splitlines()[-6:],
            }


def fifths(seen: Sequence[float]) -> list[Sequence[float]]:
    """Returns the samples in `_PART_COUNT` parts of the time."""
    edges = [len(seen) * n // _PART_COUNT for n in range(_PART_COUNT + 1)]
    return [seen[start:end] for start, end in itertools.pairwise(edges)]


def main() -> None:
    """Prints one JSON line, and exits 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="an ingest of many texts, under kill -9")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--plain", type=int, default=10_000, help="rows of each turn without kills")
    parser.add_argument("--rounds", type=int, default=3, help="turns of encoder and ingest")
    parser.add_argument("--work", type=Path, default=None, help="folder for table and stores")
    arguments = parser.parse_args()
    result = run(arguments)
    print(json.dumps(result))
    allowed = arguments.rows + WASTED_COUNT * arguments.kills
    sys.exit(1 if result["differing_count"] or result["encoded_count"] > allowed else 0)


if __name__ == "__main__":
    main()
