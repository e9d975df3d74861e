"""The same pairs through Triton and our backend: what they answer, and what that takes."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.support.device_search import DeviceModel, K
from tandem.corpus.records import Record
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.repository.config_pbtxt import pair_batch_size
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.texts.text import TextPreprocessor
from tandem.stack.free_ports import free_ports
from tandem.triton.client import TritonClient
from tandem.triton.server import TritonServer

_CALL_SECONDS = 60.0
_CALL_COUNT = 200
_CALLERS, _CALLS_OF_EACH = 8, 20


def triton_figures(
    repository: Path,
    manifest: Manifest,
    in_process: DeviceModel,
    records: Sequence[Record],
    folder: Path,
) -> dict[str, Any]:
    """Serves a repository, and returns how its answers differ from the model's and their times."""
    grpc_port, metrics_port = free_ports(2)
    server = TritonServer(
        model_repository=repository,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        log_path=folder / "triton.log",
    )
    start_time = time.perf_counter()
    try:
        server.start()
        start_seconds = time.perf_counter() - start_time
        figures = asyncio.run(
            _figures(server.address, repository, manifest, in_process, list(records)[:K])
        )
    finally:
        server.stop()
    return {"start_seconds": start_seconds, **figures}


async def _figures(
    address: str,
    repository: Path,
    manifest: Manifest,
    in_process: DeviceModel,
    records: Sequence[Record],
) -> dict[str, Any]:
    texts = TextPreprocessor.open(repository, manifest.text)
    captions = [record.captions[0].text for record in records]
    ids = [texts.token_ids(caption) for caption in captions]
    pixels = np.stack([decode_image(each.image.read(), manifest.picture) for each in records])
    triton = TritonClient(address)
    served = ServedModel(triton, manifest)
    try:
        tokens = (await served.image_tokens(pixels, _CALL_SECONDS)).values
        embeddings = (await served.embed_texts(ids, _CALL_SECONDS)).values
        one = [ids[0]] * len(tokens)
        scored = await served.match_logits(one, list(tokens), _CALL_SECONDS)
        with torch.inference_mode():
            expected_tokens = in_process.image_tokens(records)
            expected_embeddings = in_process.embed_texts(*in_process.tokenize(captions))
            pairs = in_process.tokenize([captions[0]] * len(records))
            expected_logits = in_process.match_logits(*pairs, expected_tokens)
        most = pair_batch_size(manifest)
        many = [tokens[number % len(tokens)] for number in range(most)]

        async def rerank() -> None:
            await served.match_logits(one, list(tokens), _CALL_SECONDS)

        async def embed() -> None:
            await served.embed_texts(ids[:1], _CALL_SECONDS)

        told_seconds: list[float] = []

        async def largest() -> None:
            scored = await served.match_logits([ids[0]] * most, many, _CALL_SECONDS)
            told_seconds.append(scored.cost.triton_compute_seconds or 0.0)

        return {
            "tokens_max_off": _off(tokens, expected_tokens),
            "embeddings_max_off": _off(embeddings, expected_embeddings),
            "logits_max_off": _off(scored.values, expected_logits),
            "embed_p50_ms": 1e3 * await _median_seconds(embed),
            f"rerank_{len(tokens)}_p50_ms": 1e3 * await _median_seconds(rerank),
            f"rerank_{most}_p50_ms": 1e3 * await _median_seconds(largest),
            f"rerank_{most}_compute_told_p50_ms": 1e3 * statistics.median(told_seconds),
            "pairs_per_second": most / await _seconds_of_many(largest),
        }
    finally:
        await triton.close()


async def _median_seconds(call: Callable[[], Awaitable[None]]) -> float:
    seconds = []
    for _ in range(_CALL_COUNT):
        start_time = time.perf_counter()
        await call()
        seconds.append(time.perf_counter() - start_time)
    return statistics.median(seconds[_CALL_COUNT // 10 :])


async def _seconds_of_many(call: Callable[[], Awaitable[None]]) -> float:
    """Returns the seconds a call takes where several callers call at once."""

    async def caller() -> None:
        for _ in range(_CALLS_OF_EACH):
            await call()

    start_time = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
    return (time.perf_counter() - start_time) / (_CALLERS * _CALLS_OF_EACH)


def _off(served: np.ndarray[Any, Any], expected: torch.Tensor) -> float:
    return float(np.abs(served.astype(np.float64) - expected.double().cpu().numpy()).max())
