"""A GPU: whether it answers as the CPU does, and what a search of a million items takes on it.

    python -m benchmarks.bench.gpu [--device cuda] [--items 1000000] [--models default,large]
        [--triton]

Agreement: the shipped checkpoint's export in fp32 and fp16 on the device, held against fp32 on the
CPU: tokens, embeddings, the logits of the same pairs, and R@1 over scenes. Times: one text against
`items` by embeddings and k = 20 pairs (device_search.py), stage by stage, at batch 1 and in
batches; pairs a second by batch. `large` has 12 layers of 768, 50 image tokens and random weights:
the size of what the paper timed. Items are the scenes' embeddings over and over, each with noise;
so are the image tokens, of which `held` lie in the device's memory. With --triton, the same pairs
through Triton and our backend (triton_side.py). On a CPU, in small, it tells whether it runs.

Shapes: G pictures of a gallery, Q captions, K candidates.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.support.device_search import (
    DeviceModel,
    DeviceSearch,
    drawn_items,
    ranked,
    spread_tokens,
)
from benchmarks.support.large_model import export_large
from benchmarks.support.triton_side import triton_figures
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model

CPU = torch.device("cpu")
PRECISIONS = (Precision.FP32, Precision.FP16)
PAIR_BATCH_SIZE = 2_048
_WARM_COUNT = 10
# Geigle et al. 2022 (TACL), Table 3: one text, a million pictures, k = 20, BERT-base's size.
PAPER = {"be_ms": 37.0, "coop_ms": 94.0, "ce_minutes": 36.0}


def agreement(
    reference: DeviceModel, models: dict[str, DeviceModel], records: Sequence[Record]
) -> list[dict[str, Any]]:
    """Returns how far each model's numbers and ranks are from the reference's, itself first."""
    expected = _outcome(reference, records, None)
    rows = []
    for name, model in {"cpu fp32": reference, **models}.items():
        seen = _outcome(model, records, expected["candidates"])
        own = _outcome(model, records, None)
        off = {key: _off(seen[key], expected[key]) for key in ("tokens", "embeddings", "logits")}
        probabilities = seen["logits"].sigmoid() - expected["logits"].sigmoid()
        rows.append(
            {
                "side": name,
                **{f"{key}_max_off": value for key, value in off.items()},
                "probability_max_off": probabilities.abs().max().item(),
                "recall_at_1_be": _recall(own["candidates"][:, 0], len(records)),
                "recall_at_1_coop": _recall(own["best"], len(records)),
                "same_first": (own["best"] == expected["best"]).float().mean().item(),
            }
        )
    return rows


@torch.inference_mode()
def _outcome(
    model: DeviceModel, records: Sequence[Record], candidates_QK: Tensor | None
) -> dict[str, Tensor]:
    """Returns, on the CPU, what a model makes of the gallery; of given candidates or of its own."""
    tokens_GRD = model.image_tokens(records)
    images_Gd = model.embed_images(tokens_GRD)
    search = DeviceSearch(model, images_Gd, tokens_GRD, PAIR_BATCH_SIZE)
    ids_QT, mask_QT = model.tokenize([record.captions[0].text for record in records])
    texts_Qd = model.embed_texts(ids_QT, mask_QT)
    rows_QK = search.nearest(texts_Qd) if candidates_QK is None else candidates_QK.to(model.device)
    logits_QK = search.rerank(ids_QT, mask_QT, rows_QK)
    best_Q = torch.tensor([rows[0] for rows in ranked(rows_QK, logits_QK)])
    return {
        "tokens": tokens_GRD.cpu(),
        "embeddings": torch.cat([images_Gd, texts_Qd]).cpu(),
        "candidates": rows_QK.cpu(),
        "logits": logits_QK.cpu(),
        "best": best_Q,
    }


def _off(seen: Tensor, expected: Tensor) -> float:
    return (seen.double() - expected.double()).abs().max().item()


def _recall(found_Q: Tensor, count: int) -> float:
    return (found_Q == torch.arange(count)).float().mean().item()


def times_of(
    model: DeviceModel, records: Sequence[Record], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Returns what one model's searches take over `items`."""
    with torch.inference_mode():
        tokens_GRD = model.image_tokens(records)
        items_Nd = drawn_items(model.embed_images(tokens_GRD), arguments.items, seed=1)
        if model.manifest.precision == Precision.FP16:
            items_Nd = items_Nd.half()
        tokens_MRD = spread_tokens(tokens_GRD, min(arguments.items, arguments.held))
    texts = [record.captions[1].text for record in records]
    on_device = DeviceSearch(model, items_Nd, tokens_MRD, PAIR_BATCH_SIZE)
    on_host = DeviceSearch(model, items_Nd, tokens_MRD.to(CPU, copy=True), PAIR_BATCH_SIZE)
    found: dict[str, Any] = {
        "tokens_on_device": _one_by_one(on_device, texts, arguments.queries),
        "tokens_on_host": _one_by_one(on_host, texts, arguments.queries),
        "stages_ms": _stages(on_device, texts, arguments.queries),
        "batches": [_batch(on_device, texts, size) for size in _numbers(arguments.batches)],
        "pairs": [_pairs(on_device, texts, size) for size in _numbers(arguments.pairs)],
    }
    fastest = max(each["pairs_per_second"] for each in found["pairs"])
    found["ce_minutes"] = arguments.items / fastest / 60
    if model.device.type == "cuda":
        found["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return found


def _one_by_one(search: DeviceSearch, texts: Sequence[str], count: int) -> dict[str, float]:
    def ask(number: int) -> None:
        search.search([texts[number % len(texts)]])

    return _spread(_timed(search.model.device, ask, count, _WARM_COUNT))


@torch.inference_mode()
def _stages(search: DeviceSearch, texts: Sequence[str], count: int) -> dict[str, float]:
    """Returns the median of each stage, waited for; together they take longer than a search."""
    model, seconds = search.model, dict[str, list[float]]()

    def stage(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 (what the work gives)
        start_time = time.perf_counter()
        value = work()
        _wait(model.device)
        seconds.setdefault(name, []).append(1e3 * (time.perf_counter() - start_time))
        return value

    for number in range(_WARM_COUNT + count):
        text = texts[number % len(texts)]
        ids, mask = stage("tokenize", lambda text=text: model.tokenize([text]))  # type: ignore[misc]
        embedding = stage("embed", lambda ids=ids, mask=mask: model.embed_texts(ids, mask))  # type: ignore[misc]
        rows = stage("retrieve", lambda embedding=embedding: search.nearest(embedding))  # type: ignore[misc]
        stage("tokens", lambda rows=rows: search.tokens_of(rows[0]))  # type: ignore[misc]
        logits = stage(
            "rerank with tokens",
            lambda ids=ids, mask=mask, rows=rows: search.rerank(ids, mask, rows),  # type: ignore[misc]
        )
        stage("rank", lambda rows=rows, logits=logits: ranked(rows, logits))  # type: ignore[misc]
    return {name: statistics.median(each[_WARM_COUNT:]) for name, each in seconds.items()}


def _batch(search: DeviceSearch, texts: Sequence[str], size: int) -> dict[str, float]:
    def ask(number: int) -> None:
        search.search([texts[(number * size + each) % len(texts)] for each in range(size)])

    seconds = statistics.median(_timed(search.model.device, ask, 5, 3))
    return {"texts": size, "p50_ms": 1e3 * seconds, "searches_per_second": size / seconds}


@torch.inference_mode()
def _pairs(search: DeviceSearch, texts: Sequence[str], size: int) -> dict[str, float]:
    """Times the cross-encoder alone: one text's candidates, whose tokens are in their places."""
    ids, mask = search.model.tokenize([texts[0]])
    ids_BT, mask_BT = ids.expand(size, -1).contiguous(), mask.expand(size, -1).contiguous()
    rows = torch.randint(
        len(search.tokens_MRD), (2, size), generator=torch.Generator().manual_seed(size)
    ).to(search.model.device)
    tokens_2BRD = [search.tokens_of(each) for each in rows]

    @torch.inference_mode()
    def score(number: int) -> None:
        search.model.match_logits(ids_BT, mask_BT, tokens_2BRD[number % 2])

    seconds = statistics.median(_timed(search.model.device, score, 5, 3))
    return {
        "pairs": size,
        "text_tokens": ids.shape[1],
        "p50_ms": 1e3 * seconds,
        "pairs_per_second": size / seconds,
    }


def _timed(
    device: torch.device, work: Callable[[int], None], count: int, warm_count: int
) -> list[float]:
    """Returns the seconds of each of `count` runs, the device waited for; warms up before."""
    seconds = []
    for number in range(warm_count + count):
        _wait(device)
        start_time = time.perf_counter()
        work(number)
        _wait(device)
        seconds.append(time.perf_counter() - start_time)
    return seconds[-count:]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": 1e3 * statistics.median(ordered),
        "p95_ms": 1e3 * ordered[int(0.95 * len(ordered))],
        "searches": len(ordered),
    }


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Returns the whole result; a part that fails is reported, and the others continue."""
    device = torch.device(arguments.device)
    records = list(scene_records("test", 3, arguments.gallery))
    result: dict[str, Any] = {
        "benchmark": "gpu",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "items": arguments.items,
        "held": min(arguments.items, arguments.held),
        "gallery": arguments.gallery,
        "paper_v100": PAPER,
        "exports": {},
        "times": {},
        "failed": {},
    }

    def part(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 (what the work gives)
        try:
            value = work()
        except Exception as error:
            if arguments.strict:
                raise
            result["failed"][name] = f"{type(error).__name__}: {error}"
            _note(f"{name} failed: {error}")
            return None
        _note(f"{name}: {json.dumps(value)}")
        return value

    for name in arguments.models.split(","):
        exported: dict[Precision, tuple[Path, Manifest]] = {}
        for precision in PRECISIONS:
            start_time = time.perf_counter()
            repository = folder / f"{name}-{precision}"
            exported[precision] = repository, _export(name, repository, precision)
            result["exports"][f"{name} {precision}"] = time.perf_counter() - start_time
        _note(f"exported {result['exports']}")
        models = {each: DeviceModel(*exported[each], device) for each in PRECISIONS}
        if name == "default":
            reference = DeviceModel(*exported[Precision.FP32], CPU)
            sides = {f"{device.type} {each}": model for each, model in models.items()}
            result["agreement"] = part("agreement", partial(agreement, reference, sides, records))
        if name == "default" and arguments.triton:
            chosen = Precision.FP16 if device.type == "cuda" else Precision.FP32
            side = partial(triton_figures, *exported[chosen], models[chosen], records, folder)
            result["triton"] = part("triton", side)
        for precision, model in models.items():
            key = f"{name} {precision}"
            result["times"][key] = part(key, partial(times_of, model, records, arguments))
    return result


def _export(name: str, repository: Path, precision: Precision) -> Manifest:
    if name == "large":
        return export_large(repository, precision)
    return export_model(default_checkpoint(), repository, precision)


def _note(event: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {event}", file=sys.stderr, flush=True)


def table(result: dict[str, Any]) -> str:
    """Returns the figures as Markdown."""
    lines = [
        "| side | tokens off | embeddings off | logits off | R@1 BE | R@1 Coop | same first |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {each['side']} | {each['tokens_max_off']:.1e} | {each['embeddings_max_off']:.1e} "
        f"| {each['logits_max_off']:.1e} | {each['recall_at_1_be']:.3f} "
        f"| {each['recall_at_1_coop']:.3f} | {each['same_first']:.3f} |"
        for each in result.get("agreement") or ()
    ]
    lines += [
        "",
        "| model | search p50 | p95 | tokens on host | largest batch, searches/s "
        "| most pairs/s | CE of all |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, each in result["times"].items():
        if each is None:
            continue
        one, host = each["tokens_on_device"], each["tokens_on_host"]
        rate = max(batch["searches_per_second"] for batch in each["batches"])
        pairs = max(size["pairs_per_second"] for size in each["pairs"])
        lines.append(
            f"| {name} | {one['p50_ms']:.2f} ms | {one['p95_ms']:.2f} ms | {host['p50_ms']:.2f} ms "
            f"| {rate:,.0f} | {pairs:,.0f} | {each['ce_minutes']:.2f} min |"
        )
    lines += [f"- failed, {name}: {why}" for name, why in result["failed"].items()]
    return "\n".join(lines)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="one search on a GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", default="default,large")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--held", type=int, default=100_000, help="items with tokens of their own")
    parser.add_argument("--gallery", type=int, default=500, help="scenes, a multiple of 4")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--batches", default="1,8,64,256")
    parser.add_argument("--pairs", default="20,64,128,256,512,1024,2048,4096")
    parser.add_argument("--triton", action="store_true", help="also through Triton")
    parser.add_argument("--strict", action="store_true", help="end where a part fails")
    parser.add_argument("--work", type=Path, default=None, help="where exports stay; else /tmp")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-gpu-") as folder:
        result = run(arguments, arguments.work or Path(folder))
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
