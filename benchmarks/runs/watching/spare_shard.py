"""Runs an index_svc next to the stack, for trials that would damage the others."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import grpc
import numpy as np
from numpy.typing import NDArray

from tandem.stack.free_ports import free_ports
from tandem.stack.prometheus import write_targets
from tandem.v1 import content_pb2
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub

INDEX_ID = "spare"
DIMENSION = 32
_FINGERPRINT = "spare"
_START_SECONDS = 60.0
_CALL_SECONDS = 20.0
_BATCH_COUNT = 256

F32 = NDArray[np.float32]


class SpareShard:
    """One process over a folder of its own, scraped while it runs."""

    def __init__(self, name: str, folder: Path, target_folder: Path) -> None:
        """Starts nothing; `target_folder` is where Prometheus looks for targets."""
        self.name = name
        self.store_path = folder / name
        self._log_path = folder / f"{name}.log"
        self._target_path = target_folder / f"{name}.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, *, is_served: bool = True, **settings: object) -> None:
        """Starts it with settings by their names; returns once it serves, or only listens."""
        port, metrics_port = free_ports(2)
        own = {"ADDRESS": f"127.0.0.1:{port}", "METRICS_PORT": metrics_port}
        store = {"STORE_PATH": self.store_path, "SHARD_NUMBER": 0, "SHARD_COUNT": 1}
        given = {f"INDEX_{key.upper()}": str(value) for key, value in (own | store).items()}
        given |= {f"INDEX_{key.upper()}": str(value) for key, value in settings.items()}
        with self._log_path.open("ab") as log:
            start = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "index_svc"],
                env=os.environ | given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        write_targets(self._target_path, {self.name: f"127.0.0.1:{metrics_port}"})
        self._wait_for("serving" if is_served else "listening", start)

    def stop(self) -> None:
        """Ends it; it is no longer scraped."""
        self._target_path.unlink(missing_ok=True)
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def upsert(self, embeddings_ND: F32, first_number: int = 0, *, text_bytes: int = 1_000) -> None:
        """Stores a text for each embedding; raises grpc.RpcError where it refuses."""
        for start in range(0, len(embeddings_ND), _BATCH_COUNT):
            batch = embeddings_ND[start : start + _BATCH_COUNT]
            self._stub().UpsertItems(
                pb.UpsertItemsRequest(
                    index_id=INDEX_ID,
                    model_fingerprint=_FINGERPRINT,
                    items=[
                        pb.EncodedItem(
                            item_id=str(first_number + start + place),
                            content=content_pb2.Content(text="a" * text_bytes),
                            embedding=content_pb2.Embedding(values=values_D.tobytes()),
                            tokens=content_pb2.ContentTokens(
                                text=content_pb2.TextTokens(ids=b"\1\0\0\0")
                            ),
                        )
                        for place, values_D in enumerate(batch)
                    ],
                ),
                timeout=_CALL_SECONDS,
            )

    def search(self, queries_QD: F32, k: int = 10) -> None:
        """Searches for each."""
        self._stub().SearchEmbeddings(
            pb.SearchEmbeddingsRequest(
                index_id=INDEX_ID,
                queries=[content_pb2.Embedding(values=each.tobytes()) for each in queries_QD],
                model_fingerprint=_FINGERPRINT,
                modality=content_pb2.MODALITY_TEXT,
                query_modality=content_pb2.MODALITY_TEXT,
                retrieve_k=k,
            ),
            timeout=_CALL_SECONDS,
        )

    def tune(self, index_type: str, parameters: Mapping[str, float]) -> None:
        """Has the index built as another type."""
        tuning = admin_pb.IndexTuning(index_type=index_type, parameters=parameters)
        IndexAdminServiceStub(self._channel).TuneIndex(
            admin_pb.TuneIndexRequest(index_id=INDEX_ID, tuning=tuning), timeout=_CALL_SECONDS
        )

    def wait_for_index(self, index_type: str) -> None:
        """Returns once searches go by an index of the type; raises RuntimeError."""
        admin = IndexAdminServiceStub(self._channel)
        request = admin_pb.DescribeIndexesRequest(index_id=INDEX_ID)
        end_time = time.monotonic() + _START_SECONDS
        while time.monotonic() < end_time:
            described = admin.DescribeIndexes(request, timeout=_CALL_SECONDS).descriptions
            if any(each.index_type == index_type and not each.activity for each in described):
                return
            time.sleep(0.2)
        raise RuntimeError(f"{self.name} has no index of type {index_type}")

    def _stub(self) -> IndexServiceStub:
        return IndexServiceStub(self._channel)

    def _wait_for(self, event: str, start: int) -> None:
        end_time = time.monotonic() + _START_SECONDS
        while time.monotonic() < end_time:
            with self._log_path.open("rb") as log:
                log.seek(start)
                lines = log.read().decode(errors="replace").splitlines()
            if any(_event(line) == event for line in lines):
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} does not start: {lines[-5:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


def _event(line: str) -> str:
    try:
        return str(json.loads(line).get("event", ""))
    except ValueError:
        return ""


def unit_vectors(count: int, seed: int) -> F32:
    """Returns random directions, float32 [count, DIMENSION]."""
    values = np.random.default_rng(seed).standard_normal((count, DIMENSION), dtype=np.float32)
    lengths: F32 = np.linalg.norm(values, axis=1, keepdims=True)
    return values / lengths
