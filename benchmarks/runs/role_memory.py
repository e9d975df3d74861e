"""What memory Triton takes for a joint model in both roles, and for its bi-encoder's role alone.

    python -m benchmarks.runs.role_memory [--rounds 2] [--requests 30] [--precision bf16]

Each setting is a Triton of its own, of the bundled model:

- joint: asked for texts, pictures and pairs.
- be: the same repository, asked for texts and pictures alone.
- be_unwarmed: as be, and no pair is run before it is ready either.

Memory is the proportional set size of the server and its stubs, in which what several processes
share counts once. Requests are as large as a batch may be, since the stubs keep what their largest
batch took. Prints a table and one line of JSON.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.support.process_costs import memory_kb, process_tree
from tandem.local.free_ports import free_ports
from tandem.model_io.config_pbtxt import image_batch_size, pair_batch_size
from tandem.model_io.manifest import Manifest, config_file
from tandem.model_io.precision import Precision, native_precision
from tandem.model_io.priority import Priority
from tandem.model_io.served_model import ServedModel
from tandem.model_io.triton_client import TritonClient
from tandem.model_io.triton_server import TritonServer
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model

_SETTINGS = ("joint", "be", "be_unwarmed")
# As many as each model has instances, so that each of them works.
_CLIENT_COUNT = 2
_TIMEOUT_SECONDS = 60.0
_WARM_UP = re.compile(r"model_warmup \[ \{.*?\n\} \]\n", re.DOTALL)
_MASK_LENGTH = r'key: "INPUT__{}" value: .*?dims: \[ (\d+)'


def main() -> None:
    """Measures the settings in turns."""
    parser = argparse.ArgumentParser(description="memory of a joint model's roles in Triton")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--requests", type=int, default=30, help="of each kind, a round")
    parser.add_argument("--precision", type=Precision, default=None)
    arguments = parser.parse_args()
    precision = arguments.precision or Precision(native_precision())
    megabytes: dict[str, list[float]] = {name: [] for name in _SETTINGS}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        exported = Path(name) / "exported"
        manifest = export_model(default_checkpoint(), exported, precision)
        for _ in range(arguments.rounds):
            for setting in _SETTINGS:
                served = Path(name) / "served"
                shutil.rmtree(served, ignore_errors=True)
                shutil.copytree(exported, served)
                if setting == "be_unwarmed":
                    _drop_pairs(config_file(served, manifest.functions.embed_text))
                megabytes[setting].append(_served_mb(served, manifest, setting, arguments.requests))
    medians = {name: statistics.median(each) for name, each in megabytes.items()}
    print("| setting | Triton's memory, MB | rounds | joint to it |\n| --- | ---: | --- | ---: |")
    for name, median in medians.items():
        rounds = ", ".join(f"{each:.0f}" for each in megabytes[name])
        print(f"| {name} | {median:,.0f} | {rounds} | {medians['joint'] / median:.2f} |")
    about = {"run": "role_memory", "cores": os.cpu_count(), "precision": manifest.precision}
    print(json.dumps(about | {"rounds_mb": megabytes, "requests": arguments.requests}))


def _drop_pairs(config: Path) -> None:
    """Removes the warm-ups with both a text and a picture."""
    text = config.read_text(encoding="utf-8")
    blocks = _WARM_UP.findall(text)
    pairs = [block for block in blocks if min(_length(block, 1), _length(block, 3)) > 1]
    assert 0 < len(pairs) < len(blocks), "config.pbtxt is written otherwise now"
    for block in pairs:
        text = text.replace(block, "")
    config.write_text(text, encoding="utf-8")


def _length(block: str, number: int) -> int:
    found = re.search(_MASK_LENGTH.format(number), block)
    assert found, "config.pbtxt is written otherwise now"
    return int(found[1])


def _served_mb(repository: Path, manifest: Manifest, setting: str, count: int) -> float:
    grpc_port, metrics_port = free_ports(2)
    server = TritonServer(
        model_repository=repository,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        log_path=repository.with_name("triton.log"),
    )
    server.start()
    try:
        asyncio.run(_asked(server.address, manifest, count, pairs=setting == "joint"))
        return memory_kb(process_tree(server.pid)) / 1e3
    finally:
        server.stop()


async def _asked(address: str, manifest: Manifest, count: int, *, pairs: bool) -> None:
    """Asks for `count` of each kind: a text; a batch of pictures; a batch of pairs."""
    random = np.random.default_rng(1)
    size, pair_count = manifest.picture.size, pair_batch_size(manifest)
    shape = (manifest.image_token_count, manifest.token_width)
    lengths = manifest.text.lengths

    async def ask(client: TritonClient, number: int) -> None:
        model = ServedModel(client, manifest)
        ids = random.integers(5, 1_000, lengths[number % len(lengths)]).astype(np.int32)
        await model.embed_texts([ids], _TIMEOUT_SECONDS, Priority.QUERY)
        pixels = random.integers(
            0, 256, (image_batch_size(manifest), size, size, 3), dtype=np.uint8
        )
        await model.encode_images(pixels, _TIMEOUT_SECONDS, Priority.INGEST)
        if pairs:
            tokens = [random.standard_normal(shape).astype(np.float16)] * pair_count
            await model.match_logits([ids] * pair_count, tokens, _TIMEOUT_SECONDS)

    async def ask_in_turn(client: TritonClient) -> None:
        for number in range(count // _CLIENT_COUNT):
            await ask(client, number)

    clients = [TritonClient(address) for _ in range(_CLIENT_COUNT)]
    await asyncio.gather(*map(ask_in_turn, clients))
    for client in clients:
        await client.close()


if __name__ == "__main__":
    main()
