"""One index_svc as users run it: a process of its own, filled, searched and killed over gRPC."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.peers.measurement import F32, I64, Search, Vectors
from tandem.chassis.calls.channels import CHANNEL_OPTIONS
from tandem.local.shard.settings import SHARD_DEFAULTS
from tandem.v1 import content_pb2
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub

INDEX_ID = "bench"
FINGERPRINT = "bench"
BATCH_COUNT = 256

_ROOT = Path(__file__).parents[2]
_START_SECONDS = 600.0
_CALL_SECONDS = 60.0
_SETTLE_SECONDS = 3_600.0
_QUIET_SECONDS = 2.0
# Below it every item is compared and there is no index to wait for.
_MIN_APPROXIMATE_COUNT = 20_000
_MAX_TAIL_COUNT = 2_048
# What the demo's model makes of a picture: 7 x 7 tokens of 192 float16 values.
IMAGE_TOKEN_COUNT, IMAGE_TOKEN_WIDTH = 49, 192


class IndexProcess:
    """`python -m index_svc` over one folder."""

    def __init__(self, folder: Path, item_count: int) -> None:
        """Starts the process; wait_serving() tells when it serves.

        Its settings are the defaults, but that few items too leave a snapshot.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.store_path = folder / "shard"
        self._log_path = folder / "index_svc.log"
        settings = {
            "INDEX_ADDRESS": "127.0.0.1:0",
            "INDEX_METRICS_PORT": "0",
            "INDEX_STORE_PATH": str(self.store_path),
            "INDEX_SHARD_NUMBER": "0",
            "INDEX_SHARD_COUNT": "1",
            "INDEX_SNAPSHOT_CHANGE_COUNT": str(min(5_000, item_count // 4)),
        }
        python_path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "index_svc"],
                cwd=_ROOT,
                env=os.environ | settings | {"PYTHONPATH": python_path},
                stderr=log,
            )
        self.address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_serving(self) -> None:
        """Returns once its health says SERVING."""
        end_time = time.monotonic() + _START_SECONDS
        while time.monotonic() < end_time and self._process.poll() is None:
            if not self.address and (port := self._port()):
                self.address = f"127.0.0.1:{port}"
            if self.address and _is_serving(self.address):
                return
            time.sleep(0.01)
        raise RuntimeError(f"index_svc does not serve: {self._log_path.read_text()[-2000:]}")

    def wait_checked(self) -> None:
        """Returns once all records were checked, during searches of a large store."""
        is_large = self.disk_bytes()["store_bytes"] > SHARD_DEFAULTS.checked_at_start_bytes
        while is_large and '"records checked"' not in self._log_path.read_text():
            time.sleep(1)

    def kill(self) -> None:
        """Ends the process by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def memory_bytes(self) -> dict[str, int]:
        """Returns its resident memory, and the parts that are its own and mapped from files."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        lines = dict(line.split(":", 1) for line in status.splitlines())
        names = {"rss_bytes": "VmRSS", "anonymous_bytes": "RssAnon", "file_bytes": "RssFile"}
        return {name: 1024 * int(lines[key].split()[0]) for name, key in names.items()}

    def disk_bytes(self) -> dict[str, int]:
        """Returns what the store takes on disk, and snapshots with the rows that they share."""
        derived = {self.store_path / "snapshots", self.store_path / "rows"}
        taken = {"store_bytes": 0, "snapshot_bytes": 0}
        seen = set()
        for path in self.store_path.rglob("*"):
            if path.is_file() and (stat := path.stat()).st_ino not in seen:
                seen.add(stat.st_ino)
                is_derived = not derived.isdisjoint(path.parents)
                taken["snapshot_bytes" if is_derived else "store_bytes"] += 512 * stat.st_blocks
        return taken

    def evict_rows(self) -> None:
        """Has the kernel forget the rows of snapshots that no process has touched yet."""
        for path in (self.store_path / "snapshots").rglob("rows.f32"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def remove_snapshots(self) -> None:
        """Removes them, while the process is not there."""
        shutil.rmtree(self.store_path / "snapshots")

    def _port(self) -> int | None:
        for line in self._log_path.read_text().splitlines():
            if '"listening"' in line:
                return int(json.loads(line)["port"])
        return None


@dataclass(frozen=True)
class ServedSearch:
    """Connects a client; picklable, as each client is a process."""

    address: str
    modality: content_pb2.Modality = content_pb2.MODALITY_TEXT

    @contextmanager
    def __call__(self) -> Iterator[Search]:
        """Opens a channel of its own."""
        with grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS) as channel:
            search_embeddings = IndexServiceStub(channel).SearchEmbeddings

            def search(query_D: F32, k: int) -> I64:
                request = pb.SearchEmbeddingsRequest(
                    index_id=INDEX_ID,
                    queries=[content_pb2.Embedding(values=query_D.tobytes())],
                    model_fingerprint=FINGERPRINT,
                    modality=self.modality,
                    retrieve_k=k,
                )
                response = search_embeddings(request, timeout=_CALL_SECONDS)
                return np.array([int(hit.item_id) for hit in response.hit_lists[0].hits])

            yield search


def fill(address: str, vectors: Vectors, client_count: int, *, with_image_tokens: bool) -> float:
    """Upserts all items from several processes; returns seconds from the first to the last."""
    count = len(vectors.items_ND())
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(client_count) as pool:
        pool.map(_connect, range(client_count), chunksize=1)  # so that starting up is not timed
        start_time = time.perf_counter()
        pool.starmap(
            _upsert,
            [
                (address, vectors, start, min(start + BATCH_COUNT, count), with_image_tokens)
                for start in range(0, count, BATCH_COUNT)
            ],
            chunksize=4,
        )
        return time.perf_counter() - start_time


def describe(
    address: str, modality: content_pb2.Modality, index_id: str = INDEX_ID
) -> dict[str, Any]:
    """Returns how the index stands, as IndexAdminService says."""
    with grpc.insecure_channel(address) as channel:
        response = IndexAdminServiceStub(channel).DescribeIndexes(
            admin_pb.DescribeIndexesRequest(index_id=index_id), timeout=_CALL_SECONDS
        )
    [each] = [each for each in response.descriptions if each.modality == modality]
    return {
        "index_type": each.index_type,
        "parameters": dict(each.parameters),
        "item_count": each.item_count,
        "tail_row_count": each.tail_row_count,
        "index_bytes": each.index_bytes,
        "built_recall_percent": each.built_recall_percent,
        "list_imbalance": each.list_imbalance,
        "activity": each.activity,
        "snapshot_sequence": each.snapshot_sequence,
        "applied_sequence": response.applied_sequence,
    }


def rebuild(address: str, modality: content_pb2.Modality) -> None:
    """Requests a rebuild of the index."""
    with grpc.insecure_channel(address) as channel:
        IndexAdminServiceStub(channel).RebuildIndex(
            admin_pb.RebuildIndexRequest(index_id=INDEX_ID, modality=modality),
            timeout=_CALL_SECONDS,
        )


def wait_settled(
    address: str,
    modality: content_pb2.Modality,
    index_id: str = INDEX_ID,
    *,
    with_snapshot: bool = True,
) -> dict[str, Any]:
    """Returns how the index stands once nothing is done to it any more, for two seconds long.

    "seconds" tells how long it took from now to the beginning of these two seconds.
    """
    start_time = quiet_time = time.monotonic()
    end_time = start_time + _SETTLE_SECONDS
    while time.monotonic() < end_time:
        state = describe(address, modality, index_id)
        if not _is_settled(state, with_snapshot):
            quiet_time = time.monotonic()
        if time.monotonic() - quiet_time > _QUIET_SECONDS:
            return state | {"seconds": quiet_time - start_time}
        time.sleep(0.1)
    raise RuntimeError(f"the index does not settle: {state}")


def _is_settled(state: dict[str, Any], with_snapshot: bool) -> bool:
    is_built = state["item_count"] < _MIN_APPROXIMATE_COUNT or state["index_type"] != "Flat"
    return bool(
        is_built
        and not state["activity"]
        and state["tail_row_count"] <= _MAX_TAIL_COUNT
        and (state["snapshot_sequence"] or not with_snapshot)
    )


def _is_serving(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=5
            )
        except grpc.RpcError:
            return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


_channels: dict[str, grpc.Channel] = {}


def _connect(_: int) -> None:
    """Imports what a client needs, and takes long enough that every process gets one."""
    time.sleep(0.2)


def _upsert(address: str, vectors: Vectors, start: int, stop: int, with_image_tokens: bool) -> None:
    if address not in _channels:
        _channels[address] = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    items_ND = vectors.items_ND()[start:stop]
    make = _picture if with_image_tokens else _word
    request = pb.UpsertItemsRequest(
        index_id=INDEX_ID,
        model_fingerprint=FINGERPRINT,
        items=[make(start + place, item_D) for place, item_D in enumerate(items_ND)],
    )
    IndexServiceStub(_channels[address]).UpsertItems(request, timeout=_CALL_SECONDS)


def _word(number: int, item_D: F32) -> pb.EncodedItem:
    """Returns the smallest item there is: a text of one token."""
    return pb.EncodedItem(
        item_id=str(number),
        content=content_pb2.Content(text="a"),
        embedding=content_pb2.Embedding(values=item_D.tobytes()),
        tokens=content_pb2.ContentTokens(text=content_pb2.TextTokens(ids=b"\1\0\0\0")),
    )


def _picture(number: int, item_D: F32) -> pb.EncodedItem:
    """Returns an item with image tokens; the picture itself is one byte, to be added on paper."""
    random = np.random.default_rng(number)
    tokens = random.standard_normal((IMAGE_TOKEN_COUNT, IMAGE_TOKEN_WIDTH), dtype=np.float32)
    return pb.EncodedItem(
        item_id=str(number),
        content=content_pb2.Content(image=b"\0"),
        embedding=content_pb2.Embedding(values=item_D.tobytes()),
        tokens=content_pb2.ContentTokens(
            image=content_pb2.ImageTokens(
                values=tokens.astype("<f2").tobytes(),
                token_count=IMAGE_TOKEN_COUNT,
                width=IMAGE_TOKEN_WIDTH,
            )
        ),
    )
