"""What rerank_svc's and encoder_svc's caches save, and what they cost a query that is new.

    python benchmarks/bench_caches.py [--queries 40]

Two local systems of one shard, one with caches and one without, take turns at the same queries:
50 candidates straight to rerank_svc, one text to encoder_svc, and a whole search with 50 pairs. A
cold query has never been asked; a warm one has, once.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import grpc

from tandem.client import Client
from tandem.corpus.scenes.records import scene_records
from tandem.local.stack import LocalStack, Ports
from tandem.model_io.manifest import Manifest
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.v1 import content_pb2, encoder_service_pb2, rerank_service_pb2
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.v1.rerank_service_pb2_grpc import RerankServiceStub

CANDIDATE_COUNT = 50
TIMEOUT_SECONDS = 60.0


class System:
    """One local system with the items in it."""

    def __init__(self, stack: LocalStack, manifest: Manifest, item_ids: Sequence[str]) -> None:
        self._client = Client(stack.address, timeout_seconds=TIMEOUT_SECONDS)
        self._encoder = EncoderServiceStub(grpc.insecure_channel(stack.address_of("encoder")))
        self._rerank = RerankServiceStub(grpc.insecure_channel(stack.address_of("rerank-0")))
        self._fingerprint = manifest.fingerprint
        self._item_ids = item_ids[:CANDIDATE_COUNT]

    def encode(self, text: str) -> encoder_service_pb2.EncodeContentsResponse:
        """Encodes one query."""
        response: encoder_service_pb2.EncodeContentsResponse = self._encoder.EncodeContents(
            encoder_service_pb2.EncodeContentsRequest(
                contents=[content_pb2.Content(text=text)],
                purpose=encoder_service_pb2.ENCODE_PURPOSE_QUERY,
            ),
            timeout=TIMEOUT_SECONDS,
        )
        return response

    def rerank(self, text: str) -> Callable[[], rerank_service_pb2.ScoreCandidatesResponse]:
        """Returns what scores 50 candidates against the text, which is encoded here and now."""
        request = rerank_service_pb2.ScoreCandidatesRequest(
            index_id="bench",
            query=self.encode(text).results[0].encoding.tokens,
            model_fingerprint=self._fingerprint,
            item_ids=self._item_ids,
        )
        return partial(self._rerank.ScoreCandidates, request, timeout=TIMEOUT_SECONDS)

    def search(self, text: str) -> object:
        """Searches with 50 pairs."""
        return self._client.search(
            text, index_id="bench", retrieve_k=CANDIDATE_COUNT, rerank_k=CANDIDATE_COUNT
        )

    def ingest(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Stores the pictures."""
        refused = [o for o in self._client.ingest(items, index_id="bench") if o.error]
        assert not refused, refused[0].error


def run(query_count: int) -> dict[str, object]:
    """Returns the whole result."""
    records = list(scene_records("test", 3, 200))
    items = [(record.record_id, record.image.read()) for record in records]
    texts = [f"{records[n % 200].captions[0].text} {n}" for n in range(2 * query_count + 10)]
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "model_repository"
        manifest = export_if_stale(default_checkpoint(), repository)
        with (
            LocalStack(Path(folder) / "on", repository, Ports.free(1)) as cached,
            LocalStack(Path(folder) / "off", repository, Ports.free(1), caches=False) as plain,
        ):
            systems = {}
            for name, stack in (("on", cached), ("off", plain)):
                stack.start(timeout_seconds=240.0)
                systems[name] = System(stack, manifest, [item_id for item_id, _ in items])
                systems[name].ingest(items)
            for text in texts[:10]:  # to warm up
                for system in systems.values():
                    system.search(text)
            for number, text in enumerate(texts[10:]):
                for name, system in systems.items():
                    if number % 2:
                        _note(times, f"search_{name}", partial(system.search, text))
                    else:
                        _note(times, f"encode_{name}", partial(system.encode, text))
                        _note(times, f"rerank_{name}", system.rerank(text))
    return {
        "benchmark": "caches",
        "queries": query_count,
        "candidates": CANDIDATE_COUNT,
        "cores": os.cpu_count(),
        "model": manifest.fingerprint[:12],
        "precision": manifest.precision,
        "p50_ms": {name: 1e3 * statistics.median(each) for name, each in sorted(times.items())},
    }


def _note(times: dict[str, list[float]], name: str, work: Callable[[], object]) -> None:
    """Times the work twice: at first it is new, then it was asked before."""
    for state in ("cold", "warm"):
        start_time = time.perf_counter()
        answer = work()
        times.setdefault(f"{name}_{state}", []).append(time.perf_counter() - start_time)
        if isinstance(answer, rerank_service_pb2.ScoreCandidatesResponse):
            read_seconds = answer.read_duration.ToNanoseconds() * 1e-9
            times.setdefault(f"{name}_{state}_read", []).append(read_seconds)


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    times = result["p50_ms"]
    assert isinstance(times, dict)
    rows = [
        "| p50, ms | caches off | new query | asked before | off / asked before |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, suffix in (("encode", ""), ("rerank", ""), ("rerank", "_read"), ("search", "")):
        off, cold, warm = (
            times[f"{name}_{key}{suffix}"] for key in ("off_cold", "on_cold", "on_warm")
        )
        label = f"{name}, reading of it" if suffix else name
        rows.append(f"| {label} | {off:.2f} | {cold:.2f} | {warm:.2f} | {off / warm:.1f} |")
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="what the caches save")
    parser.add_argument("--queries", type=int, default=40)
    result = run(parser.parse_args().queries)
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
