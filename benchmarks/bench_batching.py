"""Texts of mixed lengths, more and more of them a call: no call size may be slower than a smaller.

    python benchmarks/bench_batching.py [--seconds 5]

The shipped model on a real Triton, one client. Of all texts in one length (as servers do that pad a
batch to its longest) for comparison: there, a larger batch can be slower than single texts.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tandem.contract.inference_cost import InferenceCost
from tandem.local.stack import Ports
from tandem.model_io.manifest import Manifest
from tandem.model_io.served_joint_model import ServedJointModel, TokenIds
from tandem.model_io.triton_client import TritonClient
from tandem.model_io.triton_server import TritonServer
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale

CALL_SIZES = (1, 4, 16, 64)
TEXT_COUNT = 256
# Most texts are short, and every sixteenth is as long as can be.
SHORT_LENGTHS, LONG_EVERY = (6, 16), 16
TIMEOUT_SECONDS = 60.0


def mixed_texts(manifest: Manifest) -> list[TokenIds]:
    """Returns the same texts each time."""
    random = np.random.default_rng(1)
    lengths = random.integers(*SHORT_LENGTHS, TEXT_COUNT)
    lengths[::LONG_EVERY] = manifest.max_text_tokens
    return [
        np.array([manifest.cls_id, *[7] * (length - 2), manifest.sep_id], np.int32)
        for length in lengths
    ]


async def measure(address: str, manifest: Manifest, seconds: float) -> list[dict[str, float]]:
    """Returns a row for each call size and way of padding; the sizes take turns."""
    client = TritonClient(address)
    models = {
        "by length": ServedJointModel(client, manifest),
        "to one length": ServedJointModel(
            client, replace(manifest, text_length_buckets=(manifest.max_text_tokens,))
        ),
    }
    texts = mixed_texts(manifest)
    taken = dict.fromkeys(((name, size) for name in models for size in CALL_SIZES), (0.0, 0))
    costs = dict.fromkeys(models, InferenceCost())
    until = time.monotonic() + seconds * len(taken)
    while time.monotonic() < until:
        for (name, size), (before_seconds, before_count) in taken.items():
            start_time = time.perf_counter()
            cost = await embed(models[name], texts, size)
            costs[name] += cost
            elapsed_seconds = time.perf_counter() - start_time
            taken[name, size] = before_seconds + elapsed_seconds, before_count + TEXT_COUNT
    await client.close()
    return [
        {
            "padding": name,
            "texts_per_call": size,
            "texts_per_second": round(count / spent_seconds, 1),
            "padding_share": round(1 - costs[name].token_count / costs[name].padded_token_count, 3),
        }
        for (name, size), (spent_seconds, count) in taken.items()
    ]


async def embed(model: ServedJointModel, texts: Sequence[TokenIds], size: int) -> InferenceCost:
    """Embeds all texts, `size` a call, one call after another."""
    cost = InferenceCost()
    for start in range(0, len(texts), size):
        cost += (await model.embed_texts(texts[start : start + size], TIMEOUT_SECONDS)).cost
    return cost


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="texts a second by texts a call")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each row, on average")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        manifest = export_if_stale(default_checkpoint(), repository)
        ports = Ports.free(shard_count=1)
        server = TritonServer(
            model_repository=repository,
            grpc_port=ports.triton,
            metrics_port=ports.metrics[ports.triton],
            log_path=Path(folder) / "triton.log",
        )
        server.start()
        try:
            rows = asyncio.run(measure(f"127.0.0.1:{ports.triton}", manifest, seconds))
        finally:
            server.stop()
    print(json.dumps({"benchmark": "batching", "rows": rows}))
    print("| padded | texts a call | texts/s | padding |\n| --- | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row['padding']} | {row['texts_per_call']} | {row['texts_per_second']} "
            f"| {100 * row['padding_share']:.1f} % |"
        )


if __name__ == "__main__":
    main()
