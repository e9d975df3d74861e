"""infinity-emb as `bench_infinity.py` runs it: a server in an environment of its own, over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.peer_environments import own_environ
from tandem.model_io.repository.precision import Precision
from tandem.stack.stack import Ports

BATCH = 32
K = 20

_TIMEOUT_SECONDS = 120.0
_START_SECONDS = 180.0


@dataclass(frozen=True)
class Material:
    """What is encoded and reranked."""

    texts: Sequence[str]
    pictures: Sequence[bytes]
    item_ids: Sequence[str]
    documents: Sequence[str]
    """Texts that make a pair with a query as long as our pair of text and picture."""

    def batch(self, things: Sequence[Any], number: int, size: int) -> list[Any]:
        """Returns the batch of that number, around the end."""
        return [things[(number * size + place) % len(things)] for place in range(size)]


class Infinity:
    """The peer, over HTTP."""

    def __init__(self, port: int, material: Material) -> None:
        """A connection is made for each call's thread."""
        self._port, self._material = port, material
        self._images = [
            f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            for picture in material.pictures
        ]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_SECONDS)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"infinity: {response.status} {answer}")
        connection.close()
        return answer

    def texts(self, number: int) -> int:
        """Encodes a batch of texts."""
        self.text_embeddings(self._material.batch(self._material.texts, number, BATCH))
        return BATCH

    def text_embeddings(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Returns the embeddings."""
        body = {"model": "text_encoder", "input": texts, "encoding_format": "base64"}
        data = self.post("/embeddings", body)["data"]
        return np.stack(
            [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in data]
        )

    def pictures(self, number: int) -> int:
        """Encodes a batch of pictures."""
        images = self._material.batch(self._images, number, BATCH)
        body = {"model": "image_encoder", "input": images, "modality": "image"}
        answer = self.post("/embeddings", body | {"encoding_format": "base64"})
        assert len(answer["data"]) == BATCH
        return BATCH

    def pairs(self, number: int) -> int:
        """Scores one query's candidates."""
        material = self._material
        [query] = material.batch(material.texts, number, 1)
        documents = material.batch(material.documents, number, K)
        body = {"model": "cross_encoder", "query": query, "documents": documents}
        assert len(self.post("/rerank", body | {"return_documents": False})["results"]) == K
        return K


@contextmanager
def infinity(python: Path, models: Path, precision: Precision, log: Path) -> Iterator[int]:
    """Serves the three models; yields the port."""
    port = Ports.free(1).triton
    names = ("text_encoder", "image_encoder", "cross_encoder")
    each = [(f"--model-id={models / name}", f"--served-model-name={name}") for name in names]
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[precision]
    command = [
        str(python.parent / "infinity_emb"),
        "v2",
        *(option for options in each for option in options),
        *("--engine=torch" for _ in names),
        *("--device=cpu" for _ in names),
        *(f"--dtype={dtype}" for _ in names),
        *("--no-bettertransformer" for _ in names),
        *("--no-compile" for _ in names),
        *("--batch-size=128" for _ in names),
        *("--no-model-warmup" for _ in names),
        f"--port={port}",
        "--host=127.0.0.1",
        "--log-level=error",
    ]
    environ = own_environ() | {
        "DO_NOT_TRACK": "1",
        "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(os.cpu_count()),
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environ, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_for(port, process, log)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end_time = time.monotonic() + _START_SECONDS
    while time.monotonic() < end_time and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", "/health")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"infinity does not serve: {log.read_text(errors='replace')[-2000:]}")
