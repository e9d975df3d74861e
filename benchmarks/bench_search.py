"""A served search beside the same arithmetic in one process: what the services cost.

    python benchmarks/bench_search.py [--scenes 1000] [--queries 200]

Both sides run the same exported TorchScript on the same number of threads over the same items:
tokenize, embed the text, search FAISS flat, score 20 pairs, sort. The served side adds what it is
for: four services, Triton, durable storage, and a network between them. Both are warmed up, and
they take turns within the run, so that another load on the machine hits both.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import faiss
import numpy as np
import torch

from tandem.cli.stack import LocalStack, Ports
from tandem.client import Client
from tandem.corpus.records import Record
from tandem.corpus.scenes import scene_records
from tandem.model_io.buckets import bucket_of, pad_texts
from tandem.model_io.image import decode_image
from tandem.model_io.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    TOKENIZER_NAME,
    Manifest,
    model_file,
)
from tandem.model_io.text import TextPreprocessor
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.fresh_export import export_if_stale

K = 20
THREAD_COUNT = 2
CLIENT_COUNTS = (1, 16)
ROUND_COUNT = 4

Search = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class Timing:
    """Seconds of each search of one side at one number of clients, and of the whole."""

    seconds: list[float]
    wall_seconds: float

    def summary(self) -> dict[str, float]:
        """Returns p50 and p99 in ms and searches a second."""
        ordered = sorted(self.seconds)
        return {
            "p50_ms": 1e3 * statistics.median(ordered),
            "p99_ms": 1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
            "searches_per_second": len(ordered) / self.wall_seconds,
        }


class InProcess:
    """The same models and items, with nothing between them."""

    def __init__(self, repository: Path, manifest: Manifest, records: Sequence[Record]) -> None:
        torch.set_num_threads(THREAD_COUNT)
        faiss.omp_set_num_threads(1)  # as index_svc does
        self._manifest = manifest
        backbone = torch.jit.load(str(model_file(repository, IMAGE_BACKBONE)))
        self._encoder = torch.jit.load(str(model_file(repository, JOINT_ENCODER)))
        self._preprocessor = TextPreprocessor.open(
            repository / JOINT_ENCODER / TOKENIZER_NAME, manifest.max_text_tokens
        )
        self._ids = [record.record_id for record in records]
        self._tokens_NRD = torch.empty(
            len(records), manifest.image_token_count, manifest.token_width, dtype=torch.float16
        )
        self._index = faiss.IndexFlatIP(manifest.embedding_dim)
        with torch.inference_mode():
            for start in range(0, len(records), 32):
                pixels = np.stack(
                    [
                        decode_image(record.image.read(), manifest.image_size)
                        for record in records[start : start + 32]
                    ]
                )
                tokens = backbone(torch.from_numpy(pixels))
                self._tokens_NRD[start : start + len(tokens)] = tokens
                ids = torch.full((len(tokens), 1), manifest.cls_id)
                present = torch.ones(tokens.shape[:2], dtype=torch.int64)
                embeddings, _ = self._encoder(ids, torch.ones_like(ids), tokens, present)
                self._index.add(embeddings.numpy())

    def search(self, text: str) -> Sequence[str]:
        """Returns the ids of the ten best items."""
        manifest = self._manifest
        ids = self._preprocessor.token_ids(text)
        length = bucket_of(len(ids), manifest.text_length_buckets)
        padded, mask = map(torch.from_numpy, pad_texts([ids], length, manifest.pad_id))
        with torch.inference_mode():
            nothing = torch.zeros(1, 1, manifest.token_width, dtype=torch.float16)
            absent = torch.zeros(1, 1, dtype=torch.int64)
            embedding, _ = self._encoder(padded, mask, nothing, absent)
            _, [rows] = self._index.search(embedding.numpy(), K)
            tokens = self._tokens_NRD[rows]
            present = torch.ones(tokens.shape[:2], dtype=torch.int64)
            _, logits = self._encoder(padded.expand(K, -1), mask.expand(K, -1), tokens, present)
        best = logits[:, 0].argsort(descending=True)[:10].tolist()
        return [self._ids[rows[place]] for place in best]


def measure(search: Search, queries: Sequence[str], client_count: int) -> Timing:
    """Runs all queries from `client_count` threads, each asking one after another."""
    next_number = count()
    lock = threading.Lock()

    def ask(_: int) -> list[float]:
        seconds = []
        while True:
            with lock:
                number = next(next_number)
            if number >= len(queries):
                return seconds
            start_time = time.perf_counter()
            search(queries[number])
            seconds.append(time.perf_counter() - start_time)

    start_time = time.perf_counter()
    with ThreadPoolExecutor(client_count) as clients:
        parts = list(clients.map(ask, range(client_count)))
    return Timing([each for part in parts for each in part], time.perf_counter() - start_time)


def run(scene_count: int, query_count: int) -> dict[str, object]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, scene_count))
    queries = [records[n % len(records)].captions[n % 3].text for n in range(query_count)]
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        manifest = export_if_stale(default_checkpoint(), repository)
        local = InProcess(repository, manifest, records)
        # The other side keeps nothing of earlier searches either.
        with LocalStack(Path(folder) / "data", repository, Ports.free(2), caches=False) as stack:
            stack.start()
            with Client(stack.address, timeout_seconds=60.0) as client:
                pictures = ((record.record_id, record.image.read()) for record in records)
                refused = [o for o in client.ingest(pictures, index_id="bench") if o.error]
                assert not refused, refused[0].error

                def served(text: str) -> Sequence[str]:
                    return [item.item_id for item in client.search(text, index_id="bench").items]

                agreement = sum(served(text) == list(local.search(text)) for text in queries[:20])
                timings = _take_turns({"served": served, "in_process": local.search}, queries)
    result: dict[str, object] = {
        "benchmark": "search",
        "scenes": scene_count,
        "queries_per_round": query_count,
        "rounds": ROUND_COUNT,
        "threads": THREAD_COUNT,
        "cores": os.cpu_count(),
        "model": manifest.fingerprint[:12],
        "precision": manifest.precision,
        "same_answers_of_20": agreement,
    }
    for clients in CLIENT_COUNTS:
        summaries = {side: timings[side, clients].summary() for side in ("served", "in_process")}
        result[f"clients_{clients}"] = {
            **summaries,
            "p50_ratio": summaries["served"]["p50_ms"] / summaries["in_process"]["p50_ms"],
        }
    return result


def _take_turns(sides: dict[str, Search], queries: Sequence[str]) -> dict[tuple[str, int], Timing]:
    """Measures the sides in turns, after a warm-up of each, and joins the rounds."""
    for search in sides.values():
        measure(search, queries[:20], 2)
    joined: dict[tuple[str, int], Timing] = {}
    for _ in range(ROUND_COUNT):
        for clients in CLIENT_COUNTS:
            for side, search in sides.items():
                part = measure(search, queries, clients)
                before = joined.get((side, clients), Timing([], 0.0))
                joined[side, clients] = Timing(
                    before.seconds + part.seconds, before.wall_seconds + part.wall_seconds
                )
    return joined


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    rows = [
        "| clients | side | p50 ms | p99 ms | searches/s |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    for clients in CLIENT_COUNTS:
        figures = result[f"clients_{clients}"]
        assert isinstance(figures, dict)
        for side in ("served", "in_process"):
            each = figures[side]
            rows.append(
                f"| {clients} | {side.replace('_', ' ')} | {each['p50_ms']:.1f} "
                f"| {each['p99_ms']:.1f} | {each['searches_per_second']:.1f} |"
            )
        rows.append(f"| {clients} | ratio of p50 | {figures['p50_ratio']:.2f} | | |")
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="served search against the same work in process")
    parser.add_argument("--scenes", type=int, default=1_000)
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    result = run(arguments.scenes, arguments.queries)
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
