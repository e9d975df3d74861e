"""What a published model of full size costs in Triton alone: CPU time and memory.

    python -m benchmarks.runs.triton_costs [--model blip] [--tokens stored] [--precision bf16]
        [--repeats 3] [--rerank-k 20]

`hub_model` measures the whole path, whose services give a model seconds to answer; on a machine
that many share, a BLIP takes longer. This has no limit of time. The weights are random. Prints a
table and one line of JSON: medians of the repeats.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np

from benchmarks.runs.hub_model import WRITERS
from benchmarks.support.process_costs import memory_kb, process_tree, tree_cpu_seconds
from tandem.local.free_ports import free_ports
from tandem.model_io.manifest import Manifest
from tandem.model_io.precision import Precision
from tandem.model_io.priority import Priority
from tandem.model_io.served_functions import TokenSource
from tandem.model_io.served_model import ServedModel
from tandem.model_io.triton_client import TritonClient
from tandem.model_io.triton_server import TritonServer
from tandem.modeling.export.published_export import export_published
from tandem.modeling.families.reader import read_published_model

_PICTURE_COUNT = 4
_TEXT_LENGTH = 12
_TIMEOUT_SECONDS = 600.0


def main() -> None:
    """Measures one model and one source of tokens."""
    parser = argparse.ArgumentParser(description="costs of a published model in Triton")
    parser.add_argument("--model", choices=WRITERS, default="blip")
    parser.add_argument("--tokens", type=TokenSource, default=TokenSource.STORED)
    parser.add_argument("--precision", type=Precision, default=Precision.BF16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rerank-k", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        folder, repository = Path(name) / "published", Path(name) / "model_repository"
        WRITERS[arguments.model](folder, arguments.seed)
        model = read_published_model(folder)
        manifest = export_published(model, repository, arguments.precision, tokens=arguments.tokens)
        grpc_port, metrics_port = free_ports(2)
        server = TritonServer(
            model_repository=repository,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            log_path=Path(name) / "triton.log",
        )
        server.start()
        try:
            figures = asyncio.run(_measured(server, manifest, arguments))
        finally:
            server.stop()
    print("| measured | |\n| --- | ---: |")
    for what, value in figures.items():
        print(f"| {what.replace('_', ' ')} | {value:,.3f} |")
    about = {"run": "triton_costs", "cores": os.cpu_count(), "load_average": os.getloadavg()[1]}
    print(json.dumps(about | vars(arguments) | figures))


async def _measured(
    server: TritonServer, manifest: Manifest, arguments: argparse.Namespace
) -> dict[str, float]:
    """Returns medians of Triton's CPU seconds, and its memory at the end."""
    client = TritonClient(server.address)
    model = ServedModel(client, manifest)
    random = np.random.default_rng(arguments.seed)
    size = manifest.picture.size
    pixels = random.integers(0, 256, (_PICTURE_COUNT, size, size, 3), dtype=np.uint8)
    ids = random.integers(5, 1_000, _TEXT_LENGTH).astype(np.int32)

    async def seconds(ask: Callable[[], Awaitable[object]], count: int) -> float:
        await ask()
        each = []
        for _ in range(arguments.repeats):
            before_seconds = tree_cpu_seconds(server.pid)
            await ask()
            each.append(tree_cpu_seconds(server.pid) - before_seconds)
        return statistics.median(each) / count

    figures = {
        "a_picture": await seconds(
            lambda: model.encode_images(pixels, _TIMEOUT_SECONDS, Priority.INGEST), _PICTURE_COUNT
        ),
        "a_text": await seconds(
            lambda: model.embed_texts([ids], _TIMEOUT_SECONDS, Priority.QUERY), 1
        ),
    }
    if manifest.has_pairs:
        shape = (manifest.image_token_count, manifest.token_width)
        tokens = [random.standard_normal(shape).astype(np.float16)] * arguments.rerank_k
        figures["a_rerank"] = await seconds(
            lambda: model.match_logits([ids] * len(tokens), tokens, _TIMEOUT_SECONDS), 1
        )
    figures["triton_mb"] = memory_kb(process_tree(server.pid)) / 1e3
    await client.close()
    return figures


if __name__ == "__main__":
    main()
