"""Compares encoding and reranking with infinity-emb: texts, pictures and pairs a second.

    python -m benchmarks.bench.infinity [--work FOLDER] [--rounds 3]

infinity-emb runs in an environment of its own, made here, and answers over HTTP; ours over gRPC.
Models are of MiniLM's size (6 layers of 384) with random weights:

- texts: one BERT with mean pooling, the same weights on both sides, so the same embeddings;
- pictures: the layers over 7 x 7 patches of 112 x 112 pixels: infinity's as a CLIP (which resizes
  and crops with Pillow in Python), ours as the joint encoder over bare patches;
- pairs: 20 candidates a query, 65 tokens a pair. infinity's are two texts, and both come with the
  request; ours are a text and a picture's 49 tokens, which lie in the shard's item store.

Both may use both cores; sides take turns. In fp32 first, then in bf16 where the CPU has it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tokenizers import Tokenizer

from benchmarks.support.infinity_side import BATCH, Infinity, K, Material, infinity
from benchmarks.support.peer_environments import environment, own_environ
from tandem.chassis.calls.channels import CHANNEL_OPTIONS
from tandem.client import Client
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import content_pb2, encoder_service_pb2, rerank_service_pb2
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.v1.rerank_service_pb2_grpc import RerankServiceStub

REQUIREMENTS = (
    "torch==2.13.0",
    "infinity-emb[torch,server]==0.0.78",
    "aiohttp==3.13.2",
    "pillow==12.0.0",
)
PAIR_TOKENS = 65
CLIENT_COUNTS = (1, 4)
TIMEOUT_SECONDS = 120.0
INDEX_ID = "bench"

_PEERS = Path(__file__).parents[1] / "peers"

Call = Callable[[int], int]
"""Makes the request of that number and returns how many things it was about."""


class Ours:
    """Our services, over gRPC."""

    def __init__(
        self, encoder: EncoderServiceStub, rerank: RerankServiceStub, material: Material
    ) -> None:
        """The items must be in the index."""
        self._encoder, self._rerank, self._material = encoder, rerank, material
        self._queries = self._encode(
            [content_pb2.Content(text=text) for text in material.texts[:BATCH]]
        )

    def texts(self, number: int) -> int:
        """Encodes a batch of texts."""
        batch = self._material.batch(self._material.texts, number, BATCH)
        self._encode([content_pb2.Content(text=text) for text in batch])
        return BATCH

    def text_embeddings(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Returns the embeddings."""
        response = self._encode([content_pb2.Content(text=text) for text in texts])
        values = (each.encoding.embedding.values for each in response.results)
        return np.stack([np.frombuffer(each, "<f4") for each in values])

    def pictures(self, number: int) -> int:
        """Encodes a batch of pictures."""
        batch = self._material.batch(self._material.pictures, number, BATCH)
        self._encode([content_pb2.Content(image=picture) for picture in batch])
        return BATCH

    def pairs(self, number: int) -> int:
        """Scores one query's candidates."""
        result = self._queries.results[number % BATCH]
        response = self._rerank.ScoreCandidates(
            rerank_service_pb2.ScoreCandidatesRequest(
                index_id=INDEX_ID,
                query=result.encoding.tokens,
                model_fingerprint=self._queries.model_fingerprint,
                item_ids=self._material.batch(self._material.item_ids, number, K),
            ),
            timeout=TIMEOUT_SECONDS,
        )
        assert all(score.HasField("match_logit") for score in response.scores)
        return K

    def _encode(
        self, contents: Sequence[content_pb2.Content]
    ) -> encoder_service_pb2.EncodeContentsResponse:
        request = encoder_service_pb2.EncodeContentsRequest(contents=contents)
        response: encoder_service_pb2.EncodeContentsResponse = self._encoder.EncodeContents(
            request, timeout=TIMEOUT_SECONDS
        )
        assert all(each.WhichOneof("outcome") == "encoding" for each in response.results)
        return response


def material(records: Sequence[Record], tokenizer: Tokenizer) -> Material:
    """Returns texts of at most 16 tokens, their pictures, and documents of the right length."""
    captions = [caption.text for record in records for caption in record.captions]
    texts = [text for text in captions if len(tokenizer.encode(text).ids) <= 16]
    words = " ".join(captions).split()
    documents = []
    for start in range(len(texts)):
        end = start + 1
        text = ""
        # The query's share is 16 tokens; a document's [SEP] is in its 49.
        while len(tokenizer.encode(f"{text} {words[end]}", add_special_tokens=False).ids) < 49:
            text = f"{text} {words[end]}".strip()
            end += 1
        documents.append(text)
    return Material(
        texts,
        [record.image.read() for record in records],
        [record.record_id for record in records],
        documents,
    )


@contextmanager
def ours(text_encoder: Path, precision: Precision, use: Material, work: Path) -> Iterator[Ours]:
    """Serves a model that begins from the same BERT."""
    published = PublishedCheckpoint.open(str(text_encoder))
    model = JointModel(replace(published.config, image_source="patches"))
    assert isinstance(model.joint_encoder, JointEncoder)
    published.start(model.joint_encoder)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        checkpoint, repository = Path(folder) / "checkpoint", Path(folder) / "models"
        save_checkpoint(checkpoint, model.eval(), published.tokenizer, {})
        export_model(checkpoint, repository, precision)
        with LocalStack(Path(folder) / "data", repository, Ports.free(1), caches=False) as stack:
            stack.start()
            with Client(stack.address, timeout_seconds=TIMEOUT_SECONDS) as client:
                pictures = zip(use.item_ids, use.pictures, strict=True)
                refused = [o for o in client.ingest(pictures, index_id=INDEX_ID) if o.error]
                assert not refused, refused[0].error
            with (
                grpc.insecure_channel(stack.address_of("encoder"), CHANNEL_OPTIONS) as encoder,
                grpc.insecure_channel(stack.address_of("rerank-0"), CHANNEL_OPTIONS) as rerank,
            ):
                yield Ours(EncoderServiceStub(encoder), RerankServiceStub(rerank), use)


def rate(call: Call, clients: int, seconds: float) -> float:
    """Returns how many things a second all clients got done."""

    def ask(client: int) -> int:
        done = 0
        number = client
        while time.perf_counter() < end_time:
            done += call(number)
            number += clients
        return done

    start_time = time.perf_counter()
    end_time = start_time + seconds
    with ThreadPoolExecutor(clients) as threads:
        total = sum(threads.map(ask, range(clients)))
    return total / (time.perf_counter() - start_time)


def compare(
    sides: dict[str, Infinity | Ours], rounds: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Returns rates by work and number of clients, and by side: the median over the rounds."""
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        for work in ("texts", "pictures", "pairs"):
            for clients in CLIENT_COUNTS:
                for name, side in sides.items():
                    call: Call = getattr(side, work)
                    if number == 0:  # warm
                        call(clients)
                        continue
                    key = (f"{work}_{clients}", name)
                    found.setdefault(key, []).append(rate(call, clients, seconds))
    result: dict[str, dict[str, float]] = {}
    for (work, name), rates in found.items():
        result.setdefault(work, {})[name] = statistics.median(rates)
    return result


def run(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Returns the whole result."""
    requirements = [
        each + "+cpu" if each.startswith("torch==") and arguments.torch_cpu else each
        for each in REQUIREMENTS
    ]
    python = environment(work / "infinity", requirements, work / "install.log")
    models = work / "models"
    if not (models / "image_encoder" / "config.json").is_file():
        script = str(_PEERS / "infinity_models.py")
        tokenizer_path = str(default_checkpoint() / "tokenizer.json")
        subprocess.run(
            [str(python), script, str(models), tokenizer_path], env=own_environ(), check=True
        )
    tokenizer = Tokenizer.from_file(str(default_checkpoint() / "tokenizer.json"))
    records = list(scene_records("test", 3, arguments.scenes))
    use = material(records, tokenizer)
    result: dict[str, Any] = {
        "benchmark": "infinity",
        "cores": os.cpu_count(),
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "load_average": os.getloadavg()[0],
        "precisions": {},
    }
    for precision in dict.fromkeys((Precision.FP32, native_precision())):
        with (
            infinity(python, models, precision, work / "infinity.log") as port,
            ours(models / "text_encoder", precision, use, work) as our_side,
        ):
            peer = Infinity(port, use)
            difference = np.abs(
                peer.text_embeddings(use.texts[:BATCH])
                - our_side.text_embeddings(use.texts[:BATCH])
            ).max()
            result["precisions"][precision] = {
                "largest_difference_of_text_embeddings": float(difference),
                "rates": compare(
                    {"tandem": our_side, "infinity": peer}, arguments.rounds, arguments.seconds
                ),
            }
    return result


def table(result: dict[str, Any]) -> str:
    """Returns the figures as Markdown."""
    lines = [
        "| precision | work, clients | Tandem /s | infinity /s | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for precision, figures in result["precisions"].items():
        for name, rates in figures["rates"].items():
            work, clients = name.rsplit("_", 1)
            ratio = rates["tandem"] / rates["infinity"]
            lines.append(
                f"| {precision} | {work}, {clients} | {rates['tandem']:.0f} "
                f"| {rates['infinity']:.0f} | {ratio:.2f} |"
            )
        difference = figures["largest_difference_of_text_embeddings"]
        lines.append(f"| {precision} | text embeddings differ by at most | {difference:.1e} | | |")
    return "\n".join(lines)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(
        description="encoding and reranking compared with infinity-emb"
    )
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of load, each figure and round")
    parser.add_argument("--work", type=Path, default=None, help="keeps environment and models")
    parser.add_argument(
        "--torch-cpu", action="store_true", help="install torch's build without CUDA, by its name"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        result = run(arguments, work)
    print(json.dumps(result))
    print(table(result), file=sys.stdout)


if __name__ == "__main__":
    main()
