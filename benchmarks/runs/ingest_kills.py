"""Ingests a table of many items while command, shards and orchestrator are killed.

    python -m benchmarks.runs.ingest_kills [--rows 100000] [--kills 20] [--plain 10000] [--pictures]
    python -m benchmarks.runs.ingest_kills --rows 4000 --kills 5 --plain 1000    # the short form

A whole Tandem on this machine with the bundled model, two shards and no caches. First the encoder
alone and `tandem ingest` take turns over `--plain` rows each, which gives the ingest's share of the
raw rate, and the CPU time of an item in both by process. Then `tandem ingest` stores `--rows` rows
and is started again after each `kill -9` of itself; shards and the orchestrator are killed and
started in turn. At the end every id of the index, and the content and the number of every hundredth
row, are compared with the table. The rows are texts, or made drawings of 112 x 112 pixels.

Prints one JSON line, and exits 1 where the index differs or a kill wasted more than two batches.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import grpc

from benchmarks.runs.library_sync import WASTED_COUNT, encoded_count
from benchmarks.support.loads.growth import sample
from benchmarks.support.served_times import Look, cpu_spent
from tandem.client import Client
from tandem.contract.content import content_bytes
from tandem.corpus.scenes.records import scene_records
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import content_pb2, encoder_service_pb2, encoder_service_pb2_grpc

_BATCH_SIZE: Final = 64
_RAW_THREAD_COUNT: Final = 2
_VICTIMS: Final = ("command", "index-0", "command", "orchestrator", "index-1")
_PART_COUNT: Final = 5
_WORDS: Final = ("red", "green", "small", "cup", "dog", "bird", "house", "car", "left", "above")


def text_rows(count: int) -> list[dict[str, Any]]:
    """Returns rows of a table, each with a text of its own."""
    rng = random.Random(0)
    texts = (" ".join(rng.choices(_WORDS, k=8)) for _ in range(count))
    return [_row(number, text=f"{text} {number}") for number, text in enumerate(texts)]


def picture_rows(count: int, folder: Path) -> list[dict[str, Any]]:
    """Returns rows of a table, each with a drawing of its own in the folder."""
    found = []
    # Scenes come in fours.
    for number, record in enumerate(scene_records("test", 50, -(-count // 4) * 4)):
        path = folder / f"{number}.png"
        path.write_bytes(record.image.read())
        found.append(_row(number, image=str(path)))
    return found[:count]


def content_of(row: Mapping[str, Any]) -> bytes:
    """Returns the bytes of the row's text or picture."""
    return Path(row["image"]).read_bytes() if "image" in row else str(row["text"]).encode()


def _row(number: int, **content: str) -> dict[str, Any]:
    return {"id": f"row-{number:06}", "number": number, **content}


def raw_rate(address: str, rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns the rows a second that the encoder encodes for two callers."""
    given = [
        content_pb2.Content(image=content_of(row))
        if "image" in row
        else content_pb2.Content(text=row["text"])
        for row in rows
    ]
    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(_RAW_THREAD_COUNT) as pool:
        stub = encoder_service_pb2_grpc.EncoderServiceStub(channel)

        def encode(start: int) -> None:
            contents = given[start : start + _BATCH_SIZE]
            request = encoder_service_pb2.EncodeContentsRequest(contents=contents)
            answer = stub.EncodeContents(request, timeout=120)
            assert all(result.HasField("encoding") for result in answer.results)

        begin_time = time.monotonic()
        list(pool.map(encode, range(0, len(given), _BATCH_SIZE)))
        return len(given) / (time.monotonic() - begin_time)


class Run:
    """Ingests of one Tandem, and the memory of its processes meanwhile."""

    def __init__(self, stack: LocalStack, folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        self.stack, self.folder, self.rows = stack, folder, rows
        self.rng = random.Random(0)
        self.mib: dict[str, list[float]] = {}
        """Resident MiB by process, every few seconds, without mapped files."""
        self.said = ""

    def start(self, count: int, index_id: str) -> subprocess.Popen[str]:
        """Starts an ingest of the first rows."""
        table = self.folder / f"{index_id}.jsonl"
        if not table.exists():
            table.write_text("".join(json.dumps(row) + "\n" for row in self.rows[:count]))
        words = ["ingest", str(table), "--index", index_id, "--address", self.stack.address]
        return subprocess.Popen(
            [sys.executable, "-m", "tandem.cli", *words],
            env={**os.environ, "XDG_STATE_HOME": str(self.folder / "state")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def measured(self, count: int, rate: Callable[[], float]) -> tuple[float, dict[str, float]]:
        """Returns a rate, and the CPU milliseconds of a row meanwhile, by process."""
        before, start = Look.at(self.stack), os.times()
        found = rate()
        spent_ms = cpu_spent(before, Look.at(self.stack), count)
        # Of this process and of the commands that it started and that ended.
        spent_ms["caller"] = 1e3 * (sum(os.times()[:4]) - sum(start[:4])) / count
        return found, spent_ms

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
        expected = {row["id"]: row for row in self.rows[:count]}
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
            content = content_bytes(item.content) if item.content else b""
            if (content, item.attributes.get("number")) != (content_of(row), row["number"]):
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
        count = max(arguments.rows, arguments.plain)
        table = picture_rows(count, folder) if arguments.pictures else text_rows(count)
        with LocalStack(folder / "data", repository, Ports.free(2), caches=False) as stack:
            stack.start()
            ran = Run(stack, folder, table)
            encoder = next(e.address for e in stack.endpoints() if e.name == "encoder")
            plain = arguments.plain
            turns = [
                (
                    ran.measured(plain, lambda: raw_rate(encoder, table[:plain])),
                    ran.measured(plain, partial(ran.rate, plain, f"plain-{n}")),
                )
                for n in range(arguments.rounds)
            ]
            rates = [[rate for rate, _ in pair] for pair in turns]
            pause = arguments.rows / median(rate for _, rate in rates) / (1.5 * arguments.kills + 2)
            before = encoded_count(stack)
            seconds = ran.killed(arguments.rows, arguments.kills, pause)
            differing = ran.differing(arguments.rows)
            return {
                "run": "ingest under kills",
                **{key: getattr(arguments, key) for key in ("rows", "kills", "plain", "pictures")},
                "raw_rates": [round(raw) for raw, _ in rates],
                "ingest_rates": [round(ingest) for _, ingest in rates],
                "share_of_raw": round(median(ingest / raw for raw, ingest in rates), 2),
                "raw_cpu_ms": middle([spent for (_, spent), _ in turns]),
                "ingest_cpu_ms": middle([spent for _, (_, spent) in turns]),
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


def middle(spent: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the median of each process."""
    return {name: round(median(each[name] for each in spent), 2) for name in spent[0]}


def fifths(seen: Sequence[float]) -> list[Sequence[float]]:
    """Returns the samples in `_PART_COUNT` parts of the time."""
    edges = [len(seen) * n // _PART_COUNT for n in range(_PART_COUNT + 1)]
    return [seen[start:end] for start, end in itertools.pairwise(edges)]


def main() -> None:
    """Prints one JSON line, and exits 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="an ingest of many items, under kill -9")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--plain", type=int, default=10_000, help="rows of each turn without kills")
    parser.add_argument("--rounds", type=int, default=3, help="turns of encoder and ingest")
    parser.add_argument("--pictures", action="store_true", help="ingest pictures, not texts")
    parser.add_argument("--work", type=Path, default=None, help="folder for table and stores")
    arguments = parser.parse_args()
    result = run(arguments)
    print(json.dumps(result))
    allowed = arguments.rows + WASTED_COUNT * arguments.kills
    sys.exit(1 if result["differing_count"] or result["encoded_count"] > allowed else 0)


if __name__ == "__main__":
    main()
