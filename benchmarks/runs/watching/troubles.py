"""What goes wrong in the watch run, one trouble after another, and what each should set off."""

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import lmdb
import numpy as np

from benchmarks.runs.watching.running_stack import RunningStack
from benchmarks.runs.watching.spare_shard import INDEX_ID, SpareShard, unit_vectors
from tandem.local.item_store.environment import DATA_NAME, raise_limit
from tandem.v1 import content_pb2, encoder_service_pb2
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub

_MIB = 1 << 20


@dataclass
class Background:
    """Runs work in threads until it is ended, and keeps its errors."""

    faults: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def repeat(self, work: Callable[[], object], every_seconds: float) -> None:
        """Does it again and again; what a service refuses is not a fault."""

        def run() -> None:
            while not self._ended.wait(every_seconds):
                with contextlib.suppress(grpc.RpcError):
                    work()

        self.begin(run)

    def begin(self, work: Callable[[], object]) -> None:
        """Does it once."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}")

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def end(self) -> None:
        """Returns when every thread has ended."""
        self._ended.set()
        for thread in self._threads:
            thread.join(120)


def encode(address: str, texts: Sequence[str]) -> Callable[[], object]:
    """Returns what has the encoder encode the texts, as an ingest does."""
    stub = EncoderServiceStub(grpc.insecure_channel(address))
    request = encoder_service_pb2.EncodeContentsRequest(
        contents=[content_pb2.Content(text=text) for text in texts],
        purpose=encoder_service_pb2.ENCODE_PURPOSE_INGEST,
    )
    return lambda: stub.EncodeContents(request, timeout=5.0)


@contextmanager
def old_reader(store_path: Path) -> Iterator[None]:
    """Leaves a read transaction open on a shard's store while it is entered."""
    environment = lmdb.open(str(store_path), readonly=True, max_dbs=8, max_readers=64)
    try:
        with environment.begin():
            yield
    finally:
        environment.close()


def fill_small_store(shard: SpareShard, seconds: float) -> None:
    """Fills a store of 48 MiB until it refuses, makes its snapshots fail, and repairs both."""
    blocked = shard.store_path / "snapshots" / INDEX_ID
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder should be")
    with shard:
        shard.start(store_map_bytes=48 * _MIB, snapshot_change_count=200)
        end_time = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end_time:
            with contextlib.suppress(grpc.RpcError):
                shard.upsert(unit_vectors(64, number), 64 * number, text_bytes=16_000)
                number += 1
            time.sleep(0.3)
        raise_limit(shard.store_path, 256 * _MIB)
        blocked.unlink()
        shard.upsert(unit_vectors(64, number), 64 * number)
        # Until what it failed is out of the rules' windows.
        time.sleep(seconds)


def misguide_index(shard: SpareShard, unsaved_seconds: float) -> None:
    """Pins an index to bad parameters, unbalances it, and saves nothing; then repairs it."""
    with shard:
        shard.start(snapshot_change_count=10**6, recall_sample_share=1.0)
        begin_time = time.monotonic()
        for _ in range(4):  # the same again and again: changes, and no more items
            shard.upsert(unit_vectors(3_000, 1))
        shard.tune("IVF64,Flat", {"nprobe": 1})
        shard.wait_for_index("IVF64,Flat")
        one_place_ND = unit_vectors(6_000, 2) * np.float32(0.05) + unit_vectors(1, 3)
        one_place_ND /= np.linalg.norm(one_place_ND, axis=1, keepdims=True)
        shard.upsert(one_place_ND.astype(np.float32), 3_000)
        with old_reader(shard.store_path):
            for turn in range(60):
                shard.search(unit_vectors(32, 100 + turn))
                shard.upsert(unit_vectors(1, 5), 0)
                time.sleep(0.5)
        while time.monotonic() < begin_time + unsaved_seconds:
            shard.search(unit_vectors(32, int(time.monotonic())))
            time.sleep(1.0)
        shard.stop()
        # As deployed: what was pinned is free again, and snapshots are written.
        (shard.store_path / "tuning.json").unlink()
        shard.start(snapshot_change_count=200, recall_sample_share=1.0, recall_window_seconds=30.0)
        shard.upsert(unit_vectors(256, 6))
        for turn in range(40):
            shard.search(unit_vectors(32, 200 + turn))
            time.sleep(1.0)


def damage_stores(
    snapshot_shard: SpareShard, value_shard: SpareShard, page_shard: SpareShard
) -> None:
    """Flips bits in a snapshot, in a stored value and in a page that keys are found by."""
    for shard in (snapshot_shard, value_shard, page_shard):
        shard.start(snapshot_change_count=100)
        # Values of many pages lie in one place; others are rewritten with their neighbours.
        shard.upsert(unit_vectors(128, 9), text_bytes=16_000)
        _wait_for_snapshot(shard.store_path)
        shard.stop()
    files = snapshot_shard.store_path.glob("snapshots/*/*/rows.f32")
    rows = max(files, key=lambda path: path.stat().st_size)
    _flip(rows, rows.stat().st_size // 2)
    shutil.rmtree(value_shard.store_path / "snapshots")
    data = (value_shard.store_path / DATA_NAME).read_bytes()
    _flip(value_shard.store_path / DATA_NAME, data.rindex(b"a" * 8_000) + 500)
    with (page_shard.store_path / DATA_NAME).open("r+b") as file:
        file.truncate((page_shard.store_path / DATA_NAME).stat().st_size // 2)
    with snapshot_shard, value_shard, page_shard:
        snapshot_shard.start()
        value_shard.start(checked_at_start_bytes=0)
        page_shard.start(is_served=False)
        time.sleep(30.0)


def _wait_for_snapshot(store_path: Path) -> None:
    end_time = time.monotonic() + 20
    while not any(store_path.glob("snapshots/*/*/manifest.json")):
        if time.monotonic() > end_time:
            raise RuntimeError(f"{store_path} has no snapshot")
        time.sleep(0.2)
    time.sleep(0.5)


def _flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


CAUSES: Mapping[str, str] = {
    "TandemSearchErrorBurnFast": "index-1 stopped; overload",
    "TandemSearchErrorBurnSlow": "Triton stopped; overload",
    "TandemSearchLatencyBurnFast": "index-1 held for most of the time",
    "TandemSearchLatencyBurnSlow": "the same; overload",
    "TandemTargetDown": "rerank_svc stopped",
    "TandemNotServing": "Triton stopped",
    "TandemDegradedAnswers": "rerank_svc stopped",
    "TandemBreakerOpen": "rerank_svc stopped",
    "TandemShardsMissing": "index-1 stopped",
    "TandemShardSlow": "index-1 held for most of the time",
    "TandemRefusing": "overload",
    "TandemLiveRecallLow": "a spare shard's index, pinned to one list of 64",
    "TandemRecallPinned": "the same",
    "TandemListsUneven": "6,000 items in one place of that index",
    "TandemShardCorrupt": "a spare shard's store cut in half",
    "TandemItemsCorrupt": "a bit flipped in a spare shard's value",
    "TandemStoreFull": "a spare shard's map of 48 MiB, filled",
    "TandemStoreNearlyFull": "the same",
    "TandemOldReader": "a read transaction left open for 30 s during writes",
    "TandemMaintenanceFailing": "a file where that shard's snapshots should go",
    "TandemSnapshotsRefused": "a bit flipped in a spare shard's snapshot",
    "TandemSnapshotBehind": "over 20,000 changes and no snapshot",
    "TandemPaddingWaste": "texts of one word",
    "TandemTritonQueue": "overload of the encoder",
}
"""What in the run sets each alert off."""


def stop_in_turn(stack: RunningStack, say: Callable[[str], None]) -> None:
    """Stops and slows the stack's own processes; returns when all are well again."""
    say("rerank_svc of both shards stopped")
    with stack.stopped("rerank-0", "rerank-1"):
        time.sleep(32.0)
    say("back")
    time.sleep(12.0)
    say("Triton stopped")
    with stack.stopped("triton"):
        time.sleep(16.0)
    say("back")
    time.sleep(20.0)
    say("index-1 held for 1.5 of 1.65 s")
    stack.hold_on_and_off("index-1", 60.0, off=1.5, on=0.15)
    say("index-1 stopped")
    with stack.stopped("index-1"):
        time.sleep(20.0)
    say("back")
    time.sleep(15.0)
