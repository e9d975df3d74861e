"""What memory one model in both roles costs, beside its BE role alone and beside two models.

    python benchmarks/bench_memory.py [--rounds 3] [--requests 100]

Each setting is a real Triton, started anew each round, that serves the same weights:

- joint: one encoder, asked for texts, images and pairs.
- be: the same repository, asked for texts and images alone.
- be_unwarmed: as be, and its config.pbtxt runs no pairs before it is ready.
- sep: BE and CE as two encoders in one model, as `tandem models combine` makes it and
  `models add` serves it; here both have the weights of the joint one.
- sep_two_models: two models side by side, one asked for texts and images, the other for pairs;
  each warmed for its own role alone. What sep would take without being combined.

The image backbone serves all, in every setting.

Memory is that of the server and its stubs: the proportional set size (PSS), in which what several
processes share counts once. Libraries that processes outside read too count for less, so the
anonymous part, which nobody shares, stands beside it. Read when ready, and after the requests. The
stubs keep what their largest batch took (TritonServer sets the allocator so), so each request is as
large as a batch may be, as under load.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.local.stack import Ports
from tandem.model_io.config_pbtxt import image_batch_size, pair_batch_size
from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest, config_file
from tandem.model_io.triton_client import OutputSpec, TritonClient
from tandem.model_io.triton_server import TritonServer
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.modeling.separate_checkpoint import combine

TIMEOUT_SECONDS = 60.0
# As many as each model has instances, so that each of them works.
CLIENT_COUNT = 2
CROSS_ENCODER = "cross_encoder"
_WARM_UP = re.compile(r"model_warmup \[ \{.*?\n\} \]\n", re.DOTALL)
_LENGTH = r'key: "{}" value: .*?dims: \[ (\d+) \]'


@dataclass(frozen=True)
class Setting:
    """One way to serve, and who is asked for pairs."""

    name: str
    prepare: Callable[[Path], None]
    pair_model: str | None
    is_combined: bool = False


@dataclass(frozen=True)
class Memory:
    """Of one server with its stubs, in MiB."""

    pss_mib: float
    anonymous_mib: float


@dataclass(frozen=True)
class Round:
    """Two readings of one server."""

    ready: Memory
    after: Memory


def keep_warm_ups(repository: Path, name: str, *, pairs: bool) -> None:
    """Leaves the warm-ups of pairs in config.pbtxt, or those of everything else."""
    path = config_file(repository, name)
    text = path.read_text(encoding="utf-8")
    blocks = _WARM_UP.findall(text)
    others = [block for block in blocks if _is_pair(block) != pairs]
    assert 0 < len(others) < len(blocks), "config.pbtxt is written otherwise now"
    for block in others:
        text = text.replace(block, "")
    path.write_text(text, encoding="utf-8")


def _is_pair(block: str) -> bool:
    lengths = [re.search(_LENGTH.format(name), block) for name in ("text_mask", "image_mask")]
    assert all(lengths), "config.pbtxt is written otherwise now"
    return all(int(length[1]) > 1 for length in lengths if length)


def as_it_is(repository: Path) -> None:
    """Changes nothing."""


def without_pairs(repository: Path) -> None:
    """Runs no pairs before it is ready."""
    keep_warm_ups(repository, JOINT_ENCODER, pairs=False)


def two_encoders(repository: Path) -> None:
    """Puts a second encoder of the same size beside the first."""
    shutil.copytree(repository / JOINT_ENCODER, repository / CROSS_ENCODER)
    path = config_file(repository, CROSS_ENCODER)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f'"{JOINT_ENCODER}"', f'"{CROSS_ENCODER}"'), encoding="utf-8")
    keep_warm_ups(repository, JOINT_ENCODER, pairs=False)
    keep_warm_ups(repository, CROSS_ENCODER, pairs=True)


SETTINGS = (
    Setting("joint", as_it_is, JOINT_ENCODER),
    Setting("be", as_it_is, None),
    Setting("be_unwarmed", without_pairs, None),
    Setting("sep", as_it_is, JOINT_ENCODER, is_combined=True),
    Setting("sep_two_models", two_encoders, CROSS_ENCODER),
)


def run(round_count: int, request_count: int) -> dict[str, object]:
    """Returns the whole result; the settings take turns."""
    rounds: dict[str, list[Round]] = {setting.name: [] for setting in SETTINGS}
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        joint, combined = Path(folder) / "joint_repository", Path(folder) / "combined_repository"
        manifest = export_if_stale(default_checkpoint(), joint)
        combine(default_checkpoint(), default_checkpoint(), Path(folder) / "combined")
        export_if_stale(Path(folder) / "combined", combined)
        for _ in range(round_count):
            for setting in SETTINGS:
                served = Path(folder) / "served"
                shutil.rmtree(served, ignore_errors=True)
                shutil.copytree(combined if setting.is_combined else joint, served)
                setting.prepare(served)
                rounds[setting.name].append(measure(setting, served, manifest, request_count))
    figures = {name: _medians(each) for name, each in rounds.items()}
    return {
        "benchmark": "memory",
        "rounds": round_count,
        "requests_of_each_kind": request_count,
        "images_of_a_request": image_batch_size(manifest),
        "pairs_of_a_request": pair_batch_size(manifest),
        "cores": os.cpu_count(),
        "model": manifest.fingerprint[:12],
        "precision": manifest.precision,
        "settings": figures,
        "joint_to_be": figures["joint"]["after_pss_mib"] / figures["be"]["after_pss_mib"],
        "joint_to_be_unwarmed": figures["joint"]["after_pss_mib"]
        / figures["be_unwarmed"]["after_pss_mib"],
        "sep_to_be_unwarmed": figures["sep"]["after_pss_mib"]
        / figures["be_unwarmed"]["after_pss_mib"],
        "sep_two_models_to_be_unwarmed": figures["sep_two_models"]["after_pss_mib"]
        / figures["be_unwarmed"]["after_pss_mib"],
        "after_pss_mib_of_rounds": {
            name: [round(each.after.pss_mib) for each in of_setting]
            for name, of_setting in rounds.items()
        },
    }


def measure(setting: Setting, served: Path, manifest: Manifest, request_count: int) -> Round:
    """Starts a server, reads its memory, asks, and reads it again."""
    ports = Ports.free(shard_count=1)
    server = TritonServer(
        model_repository=served,
        grpc_port=ports.triton,
        metrics_port=ports.metrics[ports.triton],
        log_path=served.with_name("triton.log"),
    )
    server.start()
    try:
        ready = memory_of_group(server.pid)
        address = f"127.0.0.1:{ports.triton}"
        asyncio.run(ask(address, manifest, setting.pair_model, request_count))
        return Round(ready, memory_of_group(server.pid))
    finally:
        server.stop()


def memory_of_group(group: int) -> Memory:
    """Returns what the processes of a process group hold together."""
    pss_kib = anonymous_kib = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the name, which may hold anything: state, parent, group.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) != group:
                continue
            rollup = (folder / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pss_kib += _kib("Pss", rollup)
        anonymous_kib += _kib("Pss_Anon", rollup)
    return Memory(pss_kib / 1024, anonymous_kib / 1024)


def _kib(field: str, rollup: str) -> int:
    match = re.search(rf"^{field}: +(\d+) kB$", rollup, re.MULTILINE)
    assert match, f"this kernel tells no {field}"
    return int(match[1])


async def ask(address: str, manifest: Manifest, pair_model: str | None, request_count: int) -> None:
    """Asks for as many of each kind: a text; images through both parts; pairs."""
    clients = [TritonClient(address) for _ in range(CLIENT_COUNT)]
    rng = np.random.default_rng(1)
    size, rows = manifest.image_size, manifest.image_token_count
    image_count, row_count = image_batch_size(manifest), pair_batch_size(manifest)
    embedding = OutputSpec("OUTPUT__0", np.float32, (manifest.embedding_dim,))
    logit = OutputSpec("OUTPUT__1", np.float32, (1,))
    tokens = OutputSpec("OUTPUT__0", np.float16, (rows, manifest.token_width))

    def inputs(count: int, text_length: int, image_length: int) -> dict[str, NDArray[np.generic]]:
        ids = rng.integers(0, manifest.vocabulary_size, (count, text_length))
        shape = (count, image_length, manifest.token_width)
        return {
            "input_ids": ids,
            "text_mask": np.ones_like(ids),
            "image_tokens": rng.standard_normal(shape).astype(np.float16),
            "image_mask": np.full(shape[:2], int(image_length > 1), dtype=np.int64),
        }

    async def infer(
        client: TritonClient,
        name: str,
        of_request: dict[str, NDArray[np.generic]],
        output: OutputSpec,
    ) -> None:
        await client.infer(name, of_request, [output], TIMEOUT_SECONDS)

    async def ask_one_after_another(client: TritonClient) -> None:
        for number in range(request_count // CLIENT_COUNT):
            text_length = manifest.text_length_buckets[number % len(manifest.text_length_buckets)]
            await infer(client, JOINT_ENCODER, inputs(1, text_length, 1), embedding)
            pixels = rng.integers(0, 256, (image_count, size, size, 3), dtype=np.uint8)
            await infer(client, IMAGE_BACKBONE, {"pixels": pixels}, tokens)
            await infer(client, JOINT_ENCODER, inputs(row_count, 1, rows), embedding)
            if pair_model is not None:
                pairs = inputs(row_count, text_length, rows)
                await infer(client, pair_model, pairs, logit)

    await asyncio.gather(*map(ask_one_after_another, clients))
    for client in clients:
        await client.close()


def _medians(rounds: Sequence[Round]) -> dict[str, float]:
    return {
        f"{when}_{what}": statistics.median(getattr(getattr(each, when), what) for each in rounds)
        for when in ("ready", "after")
        for what in ("pss_mib", "anonymous_mib")
    }


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    settings = result["settings"]
    assert isinstance(settings, dict)
    base = settings["be_unwarmed"]["after_pss_mib"]
    rows = [
        "| setting | ready: PSS MiB | after: PSS MiB | of it anonymous | to be_unwarmed |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, each in settings.items():
        rows.append(
            f"| {name} | {each['ready_pss_mib']:.0f} | {each['after_pss_mib']:.0f} "
            f"| {each['after_anonymous_mib']:.0f} | {each['after_pss_mib'] / base:.3f} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="memory of Triton: both roles, one, two models")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100, help="of each kind, a round")
    arguments = parser.parse_args()
    result = run(arguments.rounds, arguments.requests)
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
