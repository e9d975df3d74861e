"""How many instances of the joint encoder Triton should run: what searches wait for in its queue.

    python benchmarks/bench_instances.py [--seconds 15]

Each client does what one search makes of the model: one text alone, then two sets of pairs at once,
one for each of two shards. The rows add up to 20 pairs and are split unevenly, as hashing splits
them. Every setting serves the same exported model on the same cores; only config.pbtxt differs.
"""

import argparse
import asyncio
import random
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.local.stack import Ports
from tandem.model_io.manifest import JOINT_ENCODER, Manifest, config_file
from tandem.model_io.triton_client import OutputSpec, TritonClient
from tandem.model_io.triton_server import TritonServer
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale

K = 20
CLIENT_COUNTS = (1, 4, 16)
TIMEOUT_SECONDS = 30.0
# A search that took this many times the median was held up by something else than its work.
STALL_RATIO = 2.5


@dataclass(frozen=True)
class Setting:
    """One way to run the model."""

    instance_count: int
    queue_delay_microseconds: int
    thread_count: int


SETTINGS = (Setting(1, 1000, 2), Setting(1, 0, 2), Setting(2, 1000, 2), Setting(2, 0, 2))


def main() -> None:
    """Prints one table: a row for each setting and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of load, each row")
    seconds: float = parser.parse_args().seconds
    print("| instances | queue delay us | clients | p50 ms | p99 ms | searches/s | stalled % |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        repository = Path(folder) / "model_repository"
        manifest = export_if_stale(default_checkpoint(), repository)
        for setting in SETTINGS:
            for clients, taken in run(setting, repository, manifest, Path(folder), seconds).items():
                print(row(setting, clients, taken, seconds), flush=True)


def run(
    setting: Setting, repository: Path, manifest: Manifest, folder: Path, seconds: float
) -> dict[int, list[float]]:
    """Returns the seconds of each search, by the number of clients."""
    served = folder / "served"
    shutil.rmtree(served, ignore_errors=True)
    shutil.copytree(repository, served)
    config_path = config_file(served, JOINT_ENCODER)
    text = config_path.read_text(encoding="utf-8")
    text = re.sub(r"instance_group \[ \{ count: \d+", _count(setting), text)
    text = re.sub(r"max_queue_delay_microseconds: \d+", _delay(setting), text)
    assert _count(setting) in text, "config.pbtxt is written otherwise now"
    assert _delay(setting) in text, "config.pbtxt is written otherwise now"
    config_path.write_text(text, encoding="utf-8")
    ports = Ports.free(shard_count=1)
    server = TritonServer(
        model_repository=served,
        grpc_port=ports.triton,
        metrics_port=ports.metrics[ports.triton],
        log_path=folder / "triton.log",
        thread_count=setting.thread_count,
    )
    server.start()
    try:
        return asyncio.run(load(f"127.0.0.1:{ports.triton}", manifest, seconds))
    finally:
        server.stop()


async def load(address: str, manifest: Manifest, seconds: float) -> dict[int, list[float]]:
    """Runs the load at each number of clients."""
    # The encoder's connection and one for the reranker of each shard.
    connections = [TritonClient(address) for _ in range(3)]
    output = OutputSpec("OUTPUT__1", np.float32, (1,))
    rng = random.Random(1)
    text_length = manifest.text_length_buckets[0]
    taken: dict[int, list[float]] = {}

    def inputs(row_count: int, image_length: int) -> dict[str, NDArray[np.generic]]:
        shape = (row_count, image_length)
        return {
            "input_ids": np.ones((row_count, text_length), dtype=np.int64),
            "text_mask": np.ones((row_count, text_length), dtype=np.int64),
            "image_tokens": np.ones((*shape, manifest.token_width), dtype=np.float16),
            "image_mask": np.ones(shape, dtype=np.int64),
        }

    async def infer(number: int, row_count: int, image_length: int) -> None:
        await connections[number].infer(
            JOINT_ENCODER, inputs(row_count, image_length), [output], TIMEOUT_SECONDS
        )

    async def client(until: float, times: list[float]) -> None:
        while time.monotonic() < until:
            start = time.perf_counter()
            await infer(0, 1, 1)
            first = rng.randint(5, 15)
            await asyncio.gather(
                infer(1, first, manifest.image_token_count),
                infer(2, K - first, manifest.image_token_count),
            )
            times.append(time.perf_counter() - start)

    for count in CLIENT_COUNTS:
        times = taken.setdefault(count, [])
        until = time.monotonic() + seconds
        await asyncio.gather(*(client(until, times) for _ in range(count)))
    for connection in connections:
        await connection.close()
    return taken


def row(setting: Setting, clients: int, taken: Sequence[float], seconds: float) -> str:
    """Returns a row of the table."""
    ordered = sorted(taken)
    p50 = statistics.median(ordered)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    stalled = sum(each > STALL_RATIO * p50 for each in ordered) / len(ordered)
    return (
        f"| {setting.instance_count} | {setting.queue_delay_microseconds} | {clients} "
        f"| {1e3 * p50:.0f} | {1e3 * p99:.0f} "
        f"| {len(ordered) / seconds:.1f} | {100 * stalled:.1f} |"
    )


def _count(setting: Setting) -> str:
    return f"instance_group [ {{ count: {setting.instance_count}"


def _delay(setting: Setting) -> str:
    return f"max_queue_delay_microseconds: {setting.queue_delay_microseconds}"


if __name__ == "__main__":
    main()
