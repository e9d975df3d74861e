"""How long a query's encoding waits beside a busy cross-encoder, by how Triton is told to queue.

    python benchmarks/bench_priorities.py [--seconds 10]

The shipped model on a real Triton. Rerank clients send pairs without pause, each twenty at a time
in chunks of at most a batch; ingest clients send 64 texts at a time; one client encodes a query's
text every 50 ms and notes how long it took. Instances, batch size and priorities are varied.
"""

import argparse
import asyncio
import json
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.local.stack import Ports
from tandem.model_io.manifest import JOINT_ENCODER, Manifest, config_file
from tandem.model_io.priority import Priority
from tandem.model_io.triton_client import OutputSpec, TritonClient
from tandem.model_io.triton_server import TritonServer
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale

RERANK_CLIENT_COUNT = 16
INGEST_CLIENT_COUNT = 2
K = 20
INGEST_TEXT_COUNT = 64
QUERY_PERIOD_SECONDS = 0.05
TEXT_LENGTH = 16
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to serve the joint encoder."""

    instance_count: int
    batch_size: int
    with_priorities: bool
    thread_count: int = 2


@dataclass
class Seen:
    """What one setting gave."""

    query_seconds: list[float]
    pair_count: int = 0
    ingested_count: int = 0
    batch_seconds: float = 0.0
    """Longest that the model took over one chunk of pairs."""


SETTINGS = (
    Setting(2, 128, False),
    Setting(2, 128, True),
    Setting(2, 32, False),
    Setting(2, 32, True),
    Setting(2, 20, True),
    Setting(2, 16, True),
    Setting(1, 32, True),
    Setting(3, 32, False),
    Setting(3, 32, True),
    Setting(2, 32, True, thread_count=1),
)


def main() -> None:
    """Prints a row of the table for each setting, and one JSON line."""
    parser = argparse.ArgumentParser(description="a query's encoding beside a busy cross-encoder")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    seconds = parser.parse_args().seconds
    results = []
    print(
        "| instances | batch | priorities | threads | query p50 ms | p99 ms | worst | "
        "longest batch ms | pairs/s | texts/s |\n" + "| ---: " * 10 + "|"
    )
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        manifest = export_if_stale(default_checkpoint(), repository)
        for setting in SETTINGS:
            seen = run(setting, repository, manifest, Path(folder), seconds)
            results.append({**asdict(setting), **_figures(seen, seconds)})
            print(row(setting, results[-1]), flush=True)
    print(json.dumps({"benchmark": "priorities", "seconds": seconds, "results": results}))


def run(
    setting: Setting, repository: Path, manifest: Manifest, folder: Path, seconds: float
) -> Seen:
    """Serves the model in that setting and runs the load."""
    served = folder / "served"
    shutil.rmtree(served, ignore_errors=True)
    shutil.copytree(repository, served)
    config_path = config_file(served, JOINT_ENCODER)
    text = config_path.read_text(encoding="utf-8")
    text = _set(text, r"(instance_group \[ \{ count: )\d+", setting.instance_count)
    text = _set(text, r"(max_batch_size: )\d+", setting.batch_size)
    # Warm-ups of more rows than a batch would be refused.
    text = re.sub(
        r"(\n  batch_size: )(\d+)",
        lambda match: f"{match[1]}{min(int(match[2]), setting.batch_size)}",
        text,
    )
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
        return asyncio.run(load(f"127.0.0.1:{ports.triton}", manifest, setting, seconds))
    finally:
        server.stop()


async def load(address: str, manifest: Manifest, setting: Setting, seconds: float) -> Seen:
    """Runs all clients for that long."""
    # The encoder's connection and the rerankers'.
    connections = [TritonClient(address) for _ in range(3)]
    embedding = OutputSpec("OUTPUT__0", np.float32, (manifest.embedding_dim,))
    logit = OutputSpec("OUTPUT__1", np.float32, (1,))
    seen = Seen([])
    until = time.monotonic() + seconds

    def inputs(row_count: int, image_length: int) -> dict[str, NDArray[Any]]:
        text_shape, image_shape = (row_count, TEXT_LENGTH), (row_count, image_length)
        return {
            "input_ids": np.ones(text_shape, dtype=np.int64),
            "text_mask": np.ones(text_shape, dtype=np.int64),
            "image_tokens": np.ones((*image_shape, manifest.token_width), dtype=np.float16),
            "image_mask": np.ones(image_shape, dtype=np.int64),
        }

    async def infer(
        number: int, row_count: int, image_length: int, output: OutputSpec, priority: Priority
    ) -> float:
        chosen = priority if setting.with_priorities else Priority.INGEST
        answer = await connections[number].infer(
            JOINT_ENCODER, inputs(row_count, image_length), [output], TIMEOUT_SECONDS, chosen
        )
        return answer.compute_seconds or 0.0

    async def chunks(
        number: int, row_count: int, image_length: int, output: OutputSpec, priority: Priority
    ) -> float:
        starts = range(0, row_count, setting.batch_size)
        return max(
            await asyncio.gather(
                *(
                    infer(
                        number,
                        min(setting.batch_size, row_count - start),
                        image_length,
                        output,
                        priority,
                    )
                    for start in starts
                )
            )
        )

    async def rerank() -> None:
        while time.monotonic() < until:
            taken = await chunks(1, K, manifest.image_token_count, logit, Priority.RERANK)
            seen.batch_seconds = max(seen.batch_seconds, taken)
            seen.pair_count += K

    async def ingest() -> None:
        while time.monotonic() < until:
            await chunks(2, INGEST_TEXT_COUNT, 1, embedding, Priority.INGEST)
            seen.ingested_count += INGEST_TEXT_COUNT

    async def ask() -> None:
        start_time = time.perf_counter()
        await infer(0, 1, 1, embedding, Priority.QUERY)
        seen.query_seconds.append(time.perf_counter() - start_time)

    async def query() -> None:
        asked = []
        while time.monotonic() < until:
            asked.append(asyncio.create_task(ask()))
            await asyncio.sleep(QUERY_PERIOD_SECONDS)
        await asyncio.gather(*asked)

    await asyncio.gather(
        query(),
        *(rerank() for _ in range(RERANK_CLIENT_COUNT)),
        *(ingest() for _ in range(INGEST_CLIENT_COUNT)),
    )
    for connection in connections:
        await connection.close()
    return seen


def row(setting: Setting, figures: dict[str, float]) -> str:
    """Returns a row of the table."""
    return (
        f"| {setting.instance_count} | {setting.batch_size} "
        f"| {'yes' if setting.with_priorities else 'no'} | {setting.thread_count} "
        f"| {figures['query_p50_ms']} | {figures['query_p99_ms']} | {figures['query_worst_ms']} "
        f"| {figures['longest_batch_ms']} | {figures['pairs_per_second']} "
        f"| {figures['texts_per_second']} |"
    )


def _figures(seen: Seen, seconds: float) -> dict[str, float]:
    def ms(value: float) -> float:
        return round(1e3 * value, 1)

    ordered: Sequence[float] = sorted(seen.query_seconds)
    return {
        "query_p50_ms": ms(statistics.median(ordered)),
        "query_p99_ms": ms(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]),
        "query_worst_ms": ms(ordered[-1]),
        "longest_batch_ms": ms(seen.batch_seconds),
        "pairs_per_second": round(seen.pair_count / seconds),
        "texts_per_second": round(seen.ingested_count / seconds),
    }


def _set(text: str, pattern: str, value: int) -> str:
    changed, count = re.subn(pattern, rf"\g<1>{value}", text, count=1)
    assert count, "config.pbtxt is written otherwise now"
    return changed


if __name__ == "__main__":
    main()
