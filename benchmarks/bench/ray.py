"""Bulk on Ray Data (integrations/ray): what kills lose or double, and the rate.

    python -m benchmarks.bench.ray kills [--pictures 20000] [--victims worker,driver]
    python -m benchmarks.bench.ray rate [--seconds 600]

Needs the environment that `make test-integrations SUITES=ray` makes. `kills` stores a folder of
scenes by `python -m tandem_ray`, kills six times one of the victims in turn, starts the same
command again after a driver, and compares the store with one of `Client.ingest`. `rate` measures
encoder_svc alone before and after, with as many batches at once as an ingest has.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.loads.growth import cpu_seconds, with_descendants
from tandem.client import Client, Modality
from tandem.contract.content import ImageContent
from tandem.contract.deadline import Deadline
from tandem.corpus.scenes.records import scene_records
from tandem.errors import IndexNotFound
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.remote.encoder import RemoteEncoder
from tandem.stack.stack import LocalStack, Ports

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build/integrations/ray/bin/python"
INDEX = "by-ray"
SHARD_COUNT = 2
BATCH_COUNT, BATCH_SIZE = 2, 32
WORKER_TITLE = b"ray::MapBatches(send)"


def main() -> None:
    """Prints what was measured, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kills", "rate"))
    parser.add_argument("--pictures", type=int, default=20_000, help="a multiple of 4")
    parser.add_argument("--victims", default="worker,driver")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="for big files; by default below /tmp")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-ray-", dir=given.folder) as name:
        folder = Path(name)
        export_if_stale(default_checkpoint(), folder / "model_repository")
        measured = (kills if given.what == "kills" else rate)(folder, given)
    print(json.dumps({"benchmark": f"ray {given.what}", "cores": os.cpu_count()} | measured))


def kills(folder: Path, given: argparse.Namespace) -> dict[str, object]:
    """Returns what is stored after six kills."""
    pictures = written_pictures(folder / "pictures", given.pictures)
    done: list[str] = []
    with stack_in(folder) as stack:
        command = RayCommand(folder, stack.address, pictures, given.streams)
        command.start()
        kill = {"worker": command.kill_worker, "driver": command.kill_driver}
        for number, victim in zip(
            range(1, 7), itertools.cycle(given.victims.split(",")), strict=False
        ):
            command.wait_until(number * given.pictures // 7)
            done.append(kill[victim]())
            print(done[-1], flush=True)
        done.append(command.finish())
        sent = (
            (str(each.relative_to(pictures).with_suffix("")), each.read_bytes())
            for each in sorted(pictures.rglob("*.png"))
        )
        with Client(stack.address, timeout_seconds=60.0) as client:
            failed = [each for each in client.ingest(sent, index_id="local") if each.error]
            count = client.describe_index(index_id=INDEX).item_count(Modality.IMAGE)
    assert not failed
    return {"kills": done, "described_count": count} | compared(folder / "data", given.pictures)


def compared(data: Path, wanted_count: int) -> dict[str, object]:
    """Returns how the stored items of the two indexes differ, and the writes of each item."""
    by_ray: dict[str, StoredEmbedding] = {}
    local: dict[str, StoredEmbedding] = {}
    writes: Counter[str] = Counter()
    for number in range(SHARD_COUNT):
        store = ItemStore.open(data / f"shard-{number}", number, SHARD_COUNT, readonly=True)
        for index_id, found in ((INDEX, by_ray), ("local", local)):
            for stored in store.scan_embeddings(index_id):
                assert isinstance(stored, StoredEmbedding)
                found[stored.item_id] = stored
        changes = store.changes_since(0)
        assert changes is not None
        writes.update(each.item_id for each in changes if each.index_id == INDEX)
        store.close()
    assert by_ray.keys() == local.keys() == writes.keys()
    cosines = [float(by_ray[each].embedding @ local[each].embedding) for each in by_ray]
    equal = sum(np.array_equal(by_ray[each].embedding, local[each].embedding) for each in by_ray)
    return {
        "stored": len(by_ray),
        "wanted": wanted_count,
        "equal to the bit": equal,
        "least cosine": min(cosines),
        "items written more than once": sum(count > 1 for count in writes.values()),
    }


def rate(folder: Path, given: argparse.Namespace) -> dict[str, object]:
    """Returns pictures a second and CPU of a Ray job of about that length in seconds.

    And of encoding alone, before and after, and of `Client.ingest` of a tenth of the pictures.
    """
    contents = [ImageContent(each.image.read()) for each in scene_records("test", 5, 1024)]
    with stack_in(folder) as stack:
        address, raw_seconds = f"127.0.0.1:{stack.ports.encoder}", given.seconds / 10
        asyncio.run(encode_rate(address, contents, 10.0))
        cpu = [served_cpu_seconds(stack)]
        before = asyncio.run(encode_rate(address, contents, raw_seconds))
        cpu.append(served_cpu_seconds(stack))
        count = int(before * given.seconds)
        source = written_parquet(folder / "parquet", contents, count)
        more = ("--content-column", "content")
        command = RayCommand(folder, stack.address, source, given.streams, *more)
        start_time = time.monotonic()
        command.start()
        command.wait_until(1)
        first_seconds = time.monotonic() - start_time
        ray_cpu: dict[int, float] = {}
        while command.process.poll() is None:
            ray_cpu |= cpu_seconds(with_descendants([command.process.pid]))
            time.sleep(2.0)
        ray_seconds = time.monotonic() - start_time
        command.finish()
        cpu.append(served_cpu_seconds(stack))
        start_time = time.monotonic()
        sent = [(str(each), contents[each % 1024].image_bytes) for each in range(count // 10)]
        assert all(each.error is None for each in command.client.ingest(sent, index_id="client"))
        client_seconds = time.monotonic() - start_time
        cpu.append(served_cpu_seconds(stack))
        after = asyncio.run(encode_rate(address, contents, raw_seconds))
    spent = [1000 * (end - start) for start, end in itertools.pairwise(cpu)]
    return {
        "pictures": count,
        "pictures a second": {
            "encoding alone, before": round(before, 1),
            "Ray": round(count / ray_seconds, 1),
            "Ray, after the first": round(count / (ray_seconds - first_seconds), 1),
            "Client.ingest": round(len(sent) / client_seconds, 1),
            "encoding alone, after": round(after, 1),
        },
        "ratio": round(count / ray_seconds / statistics.mean((before, after)), 3),
        "CPU ms a picture": {
            "services, encoding alone": round(spent[0] / before / raw_seconds, 2),
            "services, Ray": round(spent[1] / count, 2),
            "services, Client.ingest": round(spent[2] / len(sent), 2),
            "Ray's own": round(1000 * sum(ray_cpu.values()) / count, 2),
        },
    }


def served_cpu_seconds(stack: LocalStack) -> float:
    """Returns the CPU time of all processes of a stack, and of those below them."""
    heads = (each.pid for each in stack.endpoints())
    return sum(cpu_seconds(with_descendants(heads)).values())


async def encode_rate(address: str, contents: Sequence[ImageContent], seconds: float) -> float:
    """Returns pictures a second of encoder_svc, with two batches of 32 in flight."""
    batches = itertools.cycle(
        contents[start : start + BATCH_SIZE] for start in range(0, len(contents), BATCH_SIZE)
    )
    done, end_time = 0, time.monotonic() + seconds
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        encoder = RemoteEncoder(channel)

        async def encode() -> None:
            nonlocal done
            while time.monotonic() < end_time:
                batch = next(batches)
                await encoder.encode(batch, Deadline.after(60.0))
                done += len(batch)

        start_time = time.monotonic()
        await asyncio.gather(*(encode() for _ in range(BATCH_COUNT)))
    return done / (time.monotonic() - start_time)


class RayCommand:
    """`python -m tandem_ray`, which can be killed and started again."""

    def __init__(self, folder: Path, address: str, source: Path, streams: int, *more: str) -> None:
        """Prepares to store the source in the index INDEX; starts nothing."""
        self.arguments = [
            *("-m", "tandem_ray", str(source), "--index", INDEX, "--address", address),
            *("--state", str(folder / "state"), "--streams", str(streams), *more),
        ]
        self.client = Client(address, timeout_seconds=60.0)
        self.log = folder / "ray.log"
        self._started: set[int] = set()

    def start(self) -> None:
        """Starts it as the head of a process group."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(PYTHON), *self.arguments], stdout=log, stderr=log, start_new_session=True
            )

    def stored_count(self) -> int:
        """Returns the items of the index."""
        try:
            return self.client.describe_index(index_id=INDEX).item_count(Modality.IMAGE)
        except IndexNotFound:
            return 0

    def wait_until(self, count: int) -> None:
        """Returns when that number of items is stored."""
        while self.stored_count() < count:
            if self.process.poll() is not None:
                sys.exit(f"it ended with {self.process.returncode}\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)

    def kill_worker(self) -> str:
        """Kills a process that sends."""
        while not (
            pids := [
                pid
                for pid in with_descendants([self.process.pid])
                if title(pid).startswith(WORKER_TITLE)
            ]
        ):
            time.sleep(0.05)
        os.kill(pids[0], signal.SIGKILL)
        return f"worker killed at {self.stored_count()}, of {len(pids)} that sent"

    def kill_driver(self) -> str:
        """Kills the driver and starts it again, while what it started may still send."""
        self._started |= with_descendants([self.process.pid])
        self.process.kill()
        self.process.wait()
        line = f"driver killed at {self.stored_count()}"
        self.start()
        return line

    def finish(self) -> str:
        """Returns the last line that it prints, and ends what outlived a killed driver."""
        status = self.process.wait()
        left = [pid for pid in self._started if title(pid).startswith(b"ray::")]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if status:
            sys.exit(self.log.read_text()[-3000:])
        outlived = f"{len(left)} processes of killed drivers were left"
        return f"{self.log.read_text().splitlines()[-1]}; {outlived}"


def title(pid: int) -> bytes:
    """Returns how a process calls itself; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def written_pictures(folder: Path, count: int) -> Path:
    """Returns a folder of scenes, one folder a hundred families."""
    for number, scene in enumerate(scene_records("test", 3, count)):
        path = folder / f"{number // 400:03d}" / f"{scene.record_id}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(scene.image.read())
    return folder


def written_parquet(folder: Path, contents: Sequence[ImageContent], count: int) -> Path:
    """Returns a folder of parquet files, with the pictures again and again under other ids."""
    folder.mkdir()
    for start in range(0, count, 8192):
        numbers = range(start, min(start + 8192, count))
        table = pa.table(
            {
                "id": [f"picture-{number:07d}" for number in numbers],
                "content": [contents[number % len(contents)].image_bytes for number in numbers],
            }
        )
        pq.write_table(table, folder / f"{start:08d}.parquet")
    return folder


@contextmanager
def stack_in(folder: Path) -> Iterator[LocalStack]:
    """Runs Triton and the services, without caches."""
    ports = Ports.free(SHARD_COUNT)
    with LocalStack(folder / "data", folder / "model_repository", ports, caches=False) as stack:
        stack.start()
        yield stack


if __name__ == "__main__":
    main()
