"""What a published model of full size costs here: export, ingest, search, memory, bytes an item.

    python -m benchmarks.runs.hub_model [--model siglip] [--precision fp32] [--pictures 64]
        [--searches 100] [--tokens stored] [--rerank-k 20] [--repository FOLDER]
        [--export-only | --one-process]

The model is a SigLIP B/16 of 224 pixels, or a BLIP B/16 of 384 pixels that reranks, both with
random weights. Pictures are JPEGs of 640 x 480 pixels; searches are texts of a few words, one after
another, of which each is encoded. With --one-process an Engine serves the model and reports its CPU
time: on a machine that many share, canaries find the services of a large model too slow. With
--repository the model is exported into that folder, or served from it if it is there already: an
export takes more memory than the services do. Prints a table and one line of JSON.
"""

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from benchmarks.support.process_costs import memory_kb, process_tree, tree_cpu_seconds
from benchmarks.support.random_blip import write_blip
from benchmarks.support.random_siglip import write_siglip
from tandem import Engine
from tandem.client import Client
from tandem.local.stack import LocalStack, Ports
from tandem.model_io.manifest import Manifest, manifest_file, model_file, read_manifest
from tandem.model_io.precision import Precision
from tandem.model_io.served_functions import TokenSource
from tandem.modeling.export.lowered import lowered_part
from tandem.modeling.export.published_export import export_published
from tandem.modeling.export.samples import example_inputs
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import read_published_model

WRITERS = {"siglip": write_siglip, "blip": write_blip}
"""How each model is written, by its name."""
_INDEX = "photographs"
_TIMEOUT_SECONDS = 600.0
_WARM_UP_COUNT = 4
# A batch has a limit of time, and a picture may take seconds on a shared machine.
_BATCH_ITEM_COUNT = 8
_COMPARED_COUNT = 8
_COMPUTED_COUNT = 5


def main() -> None:
    """Measures one precision."""
    parser = argparse.ArgumentParser(description="costs of a published model")
    parser.add_argument("--model", choices=WRITERS, default="siglip")
    parser.add_argument("--tokens", type=TokenSource, default=TokenSource.STORED)
    parser.add_argument("--rerank-k", type=int, default=20)
    parser.add_argument("--precision", type=Precision, default=Precision.FP32)
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repository", type=Path, help="where the exported model is kept")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--export-only", action="store_true", help="start no services")
    how.add_argument("--one-process", action="store_true", help="serve by an Engine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        repository = arguments.repository or Path(name) / "model_repository"
        figures: dict[str, float] = {}
        if manifest_file(repository).exists():
            manifest = read_manifest(repository)
        else:
            WRITERS[arguments.model](Path(name) / "published", arguments.seed)
            figures, manifest = _exported(Path(name) / "published", repository, arguments)
        if arguments.one_process:
            figures |= _in_one_process(Path(name) / "data", repository, arguments)
        elif not arguments.export_only:
            figures |= _served(Path(name), repository, arguments)
        figures["load_average"] = os.getloadavg()[1]
        sizes = {each: model_file(repository, each).stat().st_size for each in manifest.models}
        figures |= {f"{each}_file_mb": size / 1e6 for each, size in sizes.items()}
        figures["embedding_bytes_an_item"] = 4.0 * manifest.embedding_dim
        is_stored = manifest.tokens is not TokenSource.RECOMPUTED
        token_count = manifest.image_token_count if is_stored else 0
        figures["image_token_bytes_an_item"] = 2.0 * token_count * manifest.token_width
    print("| measured | |\n| --- | ---: |")
    for what, value in figures.items():
        print(f"| {what.replace('_', ' ')} | {value:,.2f} |")
    about = {"run": "hub_model", "cores": os.cpu_count(), "precision": arguments.precision.value}
    print(json.dumps(about | vars(arguments) | figures, default=str))


def _exported(
    folder: Path, repository: Path, arguments: argparse.Namespace
) -> tuple[dict[str, float], Manifest]:
    start_time = time.monotonic()
    model = read_published_model(folder)
    read_time = time.monotonic()
    manifest = export_published(model, repository, arguments.precision, tokens=arguments.tokens)
    figures = {
        "parameters_millions": model.parameter_count / 1e6,
        "read_seconds": read_time - start_time,
        "export_and_compare_seconds": time.monotonic() - read_time,
    }
    figures |= _distances(model, arguments.precision)
    return figures | _computed(manifest, repository), manifest


@torch.inference_mode()
def _computed(manifest: Manifest, repository: Path) -> dict[str, float]:
    """Returns CPU milliseconds of each exported file in this process, a row of two."""
    figures = {}
    for name in sorted(manifest.models):
        exported = torch.jit.load(str(model_file(repository, name)))
        inputs = example_inputs(manifest, name)
        exported(*inputs)
        start_seconds = time.process_time()
        for _ in range(_COMPUTED_COUNT):
            exported(*inputs)
        seconds = (time.process_time() - start_seconds) / _COMPUTED_COUNT
        figures[f"{name}_cpu_ms_a_row"] = 1e3 * seconds / len(inputs[0])
    return figures


@torch.inference_mode()
def _distances(model: PublishedModel, precision: Precision) -> dict[str, float]:
    """Returns the largest cosine distances of embeddings to those in fp32, in millionths."""
    if precision is Precision.FP32:
        return {}
    towers = model.bi_encoder
    assert towers is not None
    ids = torch.randint(3, towers.text.vocabulary_size, (_COMPARED_COUNT, towers.text.max_tokens))
    size = towers.pixels.size
    pixels = torch.randint(0, 256, (_COMPARED_COUNT, size, size, 3), dtype=torch.uint8)
    distances = {}
    for name, tower, inputs in (
        ("text", towers.embed_text, (ids, torch.ones_like(ids))),
        ("picture", towers.embed_image, (pixels,)),
    ):
        outputs = tower(*inputs), lowered_part(tower, precision)(*inputs)
        # A BLIP gives image tokens with the embedding.
        exact, lower = (each[0] if isinstance(each, tuple) else each for each in outputs)
        distance = (1 - (exact.double() * lower.double()).sum(dim=1)).max().item()
        distances[f"{name}_cosine_distance_to_fp32_millionths"] = 1e6 * distance
    return distances


def _served(place: Path, repository: Path, arguments: argparse.Namespace) -> dict[str, float]:
    random = np.random.default_rng(arguments.seed)
    pictures = [(f"p{n}", _photograph(random)) for n in range(arguments.pictures)]
    # A batch of pictures may take longer than the default on a shared machine.
    settings = {
        "ORCHESTRATOR_INGEST_BATCH_TIMEOUT_SECONDS": "600",
        "ORCHESTRATOR_MAX_TIMEOUT_SECONDS": "600",
    }
    with LocalStack(
        place / "data", repository, Ports.free(1), caches=False, settings=settings
    ) as stack:
        start_time = time.monotonic()
        stack.start(timeout_seconds=300.0)
        started_seconds = time.monotonic() - start_time
        pids = {each.name: each.pid for each in stack.endpoints()}
        with Client(stack.address, timeout_seconds=_TIMEOUT_SECONDS) as client:
            _ingest(client, pictures[:_WARM_UP_COUNT])
            start_time, before = time.monotonic(), _cpu_seconds(pids)
            _ingest(client, pictures[_WARM_UP_COUNT:])
            seconds = time.monotonic() - start_time
            ingest_seconds = _cpu_seconds(pids) - before
            _searches(client, 1, arguments.rerank_k, random)
            before = _cpu_seconds(pids)
            latencies_ms = sorted(_searches(client, arguments.searches, arguments.rerank_k, random))
            search_seconds = _cpu_seconds(pids) - before
        triton_kb = memory_kb(process_tree(pids["triton"]))
        services_kb = sum(memory_kb([pid]) for name, pid in pids.items() if name != "triton")
    picture_count = len(pictures) - _WARM_UP_COUNT
    stored = sum(p.stat().st_blocks * 512 for p in (place / "data").rglob("*") if p.is_file())
    return {
        "start_seconds": started_seconds,
        "ingest_pictures_a_second": picture_count / seconds,
        "triton_cpu_seconds_a_picture": ingest_seconds[0] / picture_count,
        "services_cpu_seconds_a_picture": ingest_seconds[1] / picture_count,
        "triton_cpu_ms_a_search": 1e3 * search_seconds[0] / arguments.searches,
        "services_cpu_ms_a_search": 1e3 * search_seconds[1] / arguments.searches,
        "search_p50_ms": latencies_ms[len(latencies_ms) // 2],
        "search_p95_ms": latencies_ms[int(len(latencies_ms) * 0.95)],
        "triton_mb": triton_kb / 1e3,
        "services_mb": services_kb / 1e3,
        "data_folder_mb": stored / 1e6,
        "mean_picture_kb": sum(len(file) for _, file in pictures) / len(pictures) / 1e3,
    }


def _cpu_seconds(pids: Mapping[str, int]) -> NDArray[np.float64]:
    """Returns the CPU time of Triton, and of all services."""
    triton = tree_cpu_seconds(pids["triton"])
    services = sum(tree_cpu_seconds(pid) for name, pid in pids.items() if name != "triton")
    return np.array([triton, services])


def _in_one_process(
    data: Path, repository: Path, arguments: argparse.Namespace
) -> dict[str, float]:
    """Returns CPU seconds of this process, which a busy machine changes little, and its memory."""
    random = np.random.default_rng(arguments.seed)
    pictures = [(f"p{n}", _photograph(random)) for n in range(arguments.pictures)]
    with Engine(data, model=repository, caches=False) as engine:
        _ingest(engine, pictures[:_WARM_UP_COUNT])
        cpu_seconds = [time.process_time()]
        _ingest(engine, pictures[_WARM_UP_COUNT:])
        cpu_seconds.append(time.process_time())
        for _ in range(1 + arguments.searches):
            _searches(engine, 1, arguments.rerank_k, random)
            cpu_seconds.append(time.process_time())
        memory_mb = memory_kb([os.getpid()]) / 1e3
    ingest, first, *others = np.diff(cpu_seconds).tolist()
    return {
        "cpu_seconds_a_picture": ingest / (len(pictures) - _WARM_UP_COUNT),
        # Of recomputed tokens, the first search computes those that the later ones find cached.
        "cpu_seconds_of_the_first_search": first,
        "cpu_seconds_of_a_later_search": float(np.median(others)),
        "process_mb": memory_mb,
    }


def _ingest(client: Client | Engine, pictures: list[tuple[str, bytes]]) -> None:
    outcomes = client.ingest(pictures, index_id=_INDEX, batch_item_count=_BATCH_ITEM_COUNT)
    failed = [each.error for each in outcomes if each.error]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(pictures)} pictures were lost: {failed[0]}")


def _searches(
    client: Client | Engine, count: int, rerank_k: int, random: np.random.Generator
) -> list[float]:
    """Returns the milliseconds of each search; raises if a model that reranks stops early."""
    latencies_ms = []
    for _ in range(count):
        words = ["".join(random.choice(list("abcdefgh"), 5)) for _ in range(6)]
        start_time = time.monotonic()
        found = client.search(" ".join(words), index_id=_INDEX, return_n=10, rerank_k=rerank_k)
        latencies_ms.append(1e3 * (time.monotonic() - start_time))
        if found.is_degraded:
            raise RuntimeError(f"a search was not reranked to {rerank_k}: {found.rerank}")
    return latencies_ms


def _photograph(random: np.random.Generator) -> bytes:
    """Returns a JPEG of 640 x 480 pixels, of soft shapes as photographs have."""
    coarse = Image.fromarray(random.integers(0, 256, (48, 64, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    return file.getvalue()


if __name__ == "__main__":
    main()
