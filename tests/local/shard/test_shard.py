"""Tests that a shard follows its store, and that a damaged item affects only itself."""

import time
import tracemalloc
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from structlog.testing import capture_logs

from tandem.contract.content import Modality
from tandem.errors import (
    IndexNotFound,
    InternalFault,
    ItemCorrupt,
    ModelMismatch,
    ServiceUnavailable,
    StoreFull,
    TandemError,
)
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.verdict import verify_in_child
from tandem.local.shard.memory_limit import anonymous_bytes
from tandem.local.shard.metrics import CORRUPT_ITEMS
from tandem.local.shard.retrieval.embedding_rows import BLOCK_ROW_COUNT
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.settings import SHARD_DEFAULTS, ShardSettings
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.upkeep.record_check import take_out
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Committed, Delete, Drop, ItemWrite, Upsert
from tandem.stages.retrieval import ShardQuery
from tests.support.item_store.made_items import FINGERPRINT, text_item, unit_vector
from tests.support.item_store.stored_values import overwrite, stored_value

MAP_BYTES = 16 << 20


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[StoredShard]:
    shard = open_shard(tmp_path)
    yield shard
    shard.close()


def open_shard(path: Path, settings: ShardSettings = SHARD_DEFAULTS) -> StoredShard:
    shard = StoredShard(ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES), path, settings)
    shard.load()
    return shard


def wait_for_snapshots(shard: StoredShard, sequence: int) -> None:
    """Waits until both modalities have a snapshot at that sequence."""
    end_time = time.monotonic() + 60
    while {shard.maintenance.snapshots.sequence("scenes", each) for each in Modality} != {sequence}:
        assert time.monotonic() < end_time, "no snapshot"
        shard.maintenance.wake("scenes")
        time.sleep(0.01)


def upsert(*item_ids: str, fingerprint: str = FINGERPRINT) -> Upsert:
    return Upsert("scenes", fingerprint, [text_item(item_id, 1) for item_id in item_ids])


def found(shard: StoredShard) -> list[str]:
    query = ShardQuery(
        index_id="scenes",
        fingerprint=FINGERPRINT,
        modality=Modality.TEXT,
        query_modality=Modality.IMAGE,
        embeddings=[unit_vector(1)],
        retrieve_k=1000,
    )
    [one] = shard.search(query).found
    return [hit.item_id for hit in one.hits]


@pytest.mark.parametrize("checked_at_start_bytes", [1 << 30, 0])
def test_a_snapshot_serves_no_item_whose_record_is_damaged(
    tmp_path: Path, checked_at_start_bytes: int
) -> None:
    """The snapshot is sound, but the records are checked too, at load or alongside searches."""
    settings = ShardSettings(snapshot_change_count=1, checked_at_start_bytes=checked_at_start_bytes)
    shard = open_shard(tmp_path, settings)
    shard.write(upsert("a", "b", "c", "d")).result(60)
    wait_for_snapshots(shard, 4)
    shard.close()
    for item_id in ("b", "d"):
        key = item_key("scenes", item_id)
        overwrite(tmp_path, "items", key, stored_value(tmp_path, "items", key)[:-1] + b"?")
    before = CORRUPT_ITEMS._value.get()

    with capture_logs() as logs:
        shard = open_shard(tmp_path, settings)
        if not checked_at_start_bytes:
            shard.work_after_load["record check"].join(30)

    assert shard.maintenance.snapshots.sequence("scenes", Modality.TEXT) == 4
    assert found(shard) == ["a", "c"]
    assert CORRUPT_ITEMS._value.get() == before + 2
    told = [line["why"] for line in logs if line["event"] == "item corrupt"]
    assert ["'b'" in told[0], "'d'" in told[1]] == [True, True]
    shard.write(upsert("b")).result(60)
    assert found(shard) == ["a", "b", "c"]
    shard.close()


def test_an_item_that_is_damaged_while_it_is_served_is_found_until_it_is_read(
    tmp_path: Path,
) -> None:
    """The next search does not find it."""
    shard = open_shard(tmp_path)
    shard.write(upsert("a", "b", "c")).result(60)
    files, key = shard._store._files, item_key("scenes", "b")
    with files.env.write() as txn:
        txn.put(key, bytes(txn.get(key, db=files.items))[:-1] + b"?", db=files.items)  # type: ignore[arg-type]
    assert found(shard) == ["a", "b", "c"]

    with pytest.raises(ItemCorrupt):
        shard.read_within("scenes", ["a", "b"])

    assert found(shard) == ["a", "c"]
    shard.close()


def test_an_item_that_is_repaired_during_its_removal_stays(tmp_path: Path) -> None:
    """The check does not undo a concurrent write."""
    shard = open_shard(tmp_path)
    shard.write(upsert("a", "b")).result(60)
    index = shard.index("scenes")
    error = ItemCorrupt(item_id="b", why="as found before it was mended")

    assert not take_out(shard._store, "scenes", index, "b", error)

    assert found(shard) == ["a", "b"]
    shard.close()


def test_a_repeated_write_is_answered_and_not_applied_again(shard: StoredShard) -> None:
    """Changes after the first attempt stay, in the store and in searches."""
    write = replace(upsert("a", "b"), request_id="r")
    first = shard.write(write).result(60)
    shard.write(Delete("scenes", ["a"])).result(60)

    again = shard.write(write).result(60)

    assert (again.sequence, again.is_repeat) == (first.sequence, True)
    assert found(shard) == ["b"]
    assert [item.item_id for item in shard.read_within("scenes", ["a", "b"])[0]] == ["b"]


def test_of_two_models_that_race_for_a_new_index_one_wins(shard: StoredShard) -> None:
    """Both writes share the transaction that creates the index."""
    futures: list[Future[Committed]] = [
        shard.write(upsert("a")),
        shard.write(upsert("b", fingerprint="model-b")),
        shard.write(upsert("c")),
    ]

    assert [type(future.exception(60)) for future in futures] == [
        type(None),
        ModelMismatch,
        type(None),
    ]
    assert found(shard) == ["a", "c"]


def test_dead_rows_are_dropped_if_the_configured_index_cannot_be_built(tmp_path: Path) -> None:
    """Searches scan and say why, and maintenance does not retry forever."""
    shard = StoredShard(
        ItemStore.open(tmp_path, 0, 1, map_bytes=4 * MAP_BYTES),
        tmp_path,
        ShardSettings(faiss_type="IVF4096,Flat"),
    )
    shard.load()
    shard.maintenance.stop()  # stepped here instead
    item_ids = [f"{number:04}" for number in range(1_500)]
    for start in range(0, 1_500, 250):
        shard.write(upsert(*item_ids[start : start + 250])).result(60)
    for start in range(0, 1_200, 240):
        shard.write(Delete("scenes", item_ids[start : start + 240])).result(60)

    steps = [shard.maintenance.step() for _ in range(10)]

    part = shard.index("scenes").part(Modality.TEXT)
    assert any(steps)
    assert not any(steps[5:])
    assert (part.rows.row_count, part.rows.dead_count) == (300, 0)
    assert "training points" in part.fallback.why
    assert found(shard) == item_ids[1_200:]
    shard.close()


class FailingStore(ItemStore):
    """Fails as a disk does; `is_stored` says whether the write reached it all the same."""

    fault: Exception | None = None
    is_stored = False

    def apply(self, writes: Sequence[ItemWrite]) -> list[Committed | TandemError]:
        if self.fault is None:
            return super().apply(writes)
        if self.is_stored:
            super().apply(writes)
        fault, self.fault = self.fault, None
        raise fault


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("fault", [OSError("fsync failed"), lmdb.PanicError("meta page")])
def test_a_fault_of_the_disk_is_recovered_from(
    tmp_path: Path, fault: Exception, is_stored: bool
) -> None:
    """The write is refused as possibly stored; then searches find it if it is, and writes work."""
    store = FailingStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES)
    shard = StoredShard(store, tmp_path)
    shard.load()
    shard.write(upsert("a", "d")).result(60)
    store.fault, store.is_stored = fault, is_stored
    write = replace(upsert("b"), request_id="r")

    refusal = shard.write(write).exception(60)

    assert isinstance(refusal, ServiceUnavailable)
    assert "may or may not be stored" in refusal.message
    again = until_taken(shard, write)
    assert again.is_repeat is is_stored
    assert found(shard) == ["a", "b", "d"]
    store.fault = fault
    assert isinstance(shard.write(Delete("scenes", ["d"])).exception(60), ServiceUnavailable)
    until_taken(shard, upsert("c"))
    assert found(shard) == (["a", "b", "c"] if is_stored else ["a", "b", "c", "d"])
    shard.close()


def test_a_drop_in_a_commit_that_failed_is_recovered_too(tmp_path: Path) -> None:
    """The index is gone, and its name is free for another model."""
    store = FailingStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES)
    shard = StoredShard(store, tmp_path)
    shard.load()
    shard.write(upsert("a")).result(60)
    shard.write(Delete("scenes", ["a"])).result(60)
    store.fault, store.is_stored = OSError("fsync failed"), True

    assert isinstance(shard.write(Drop("scenes")).exception(60), ServiceUnavailable)

    until_taken(shard, replace(upsert("b"), index_id="other"))
    assert list(shard.indexes()) == ["other"]
    shard.write(upsert("new", fingerprint="model-b")).result(60)
    assert shard.fingerprint("scenes") == shard.index("scenes").info.fingerprint == "model-b"
    shard.close()


def test_a_fault_on_a_disk_with_little_room_is_named_a_full_store(tmp_path: Path) -> None:
    """LMDB reports a full disk as EIO; a failed snapshot may have freed space before one looks."""
    store = FailingStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES)
    store.env.had_little_room = lambda: True  # type: ignore[method-assign]
    shard = StoredShard(store, tmp_path)
    shard.load()
    store.fault = OSError("Input/output error")
    write = replace(upsert("b"), request_id="r")

    refusal = shard.write(write).exception(60)

    assert isinstance(refusal, StoreFull)
    assert "may or may not be stored" in refusal.message
    until_taken(shard, write)
    assert found(shard) == ["b"]
    shard.close()


def test_another_fault_stops_the_writer(tmp_path: Path) -> None:
    """Reopening does not repair it; searches and reads continue."""
    store = FailingStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES)
    shard = StoredShard(store, tmp_path)
    shard.load()
    shard.write(upsert("a")).result(60)
    store.fault = KeyError("a bug")

    assert isinstance(shard.write(upsert("b")).exception(60), InternalFault)

    with pytest.raises(InternalFault):
        shard.write(upsert("c"))
    with pytest.raises(InternalFault):
        shard.check()
    assert found(shard) == ["a"]
    assert [item.item_id for item in shard.read_within("scenes", ["a"])[0]] == ["a"]
    shard.close()


def test_a_block_of_new_rows_leaves_the_memory(shard: StoredShard) -> None:
    """While the shard takes items, without a snapshot; searches find what they found."""
    for start in range(0, BLOCK_ROW_COUNT, 256):
        shard.write(upsert(*[f"item-{n}" for n in range(start, start + 256)])).result(60)
    before = found(shard)

    rows = shard.index("scenes").part(Modality.TEXT).rows
    end_time = time.monotonic() + 60
    while rows.unsaved_count >= BLOCK_ROW_COUNT:
        assert time.monotonic() < end_time
        time.sleep(0.01)

    assert rows.file is not None
    assert rows.file.row_count > 0  # all of them, or those of an earlier snapshot
    assert found(shard) == before


def test_items_that_do_not_fit_into_the_memory_are_refused_by_name(tmp_path: Path) -> None:
    """Deletions are not, and a shard with room, or without a limit, takes items."""
    for memory_bytes in (0, 2 * anonymous_bytes()):
        shard = open_shard(tmp_path, ShardSettings(memory_bytes=memory_bytes))
        shard.write(upsert("a", "b")).result(60)
        shard.close()
    shard = open_shard(tmp_path, ShardSettings(memory_bytes=1))

    with pytest.raises(StoreFull, match="of 1 by INDEX_MEMORY_BYTES"):
        shard.write(upsert("c"))

    shard.write(Delete("scenes", ["a"])).result(60)
    assert found(shard) == ["b"]
    shard.close()


def test_a_dropped_index_leaves_nothing(tmp_path: Path) -> None:
    """Items, tuning and snapshots go, also after a restart; other indexes stay."""
    shard = open_shard(tmp_path)
    ids = [f"item-{n}" for n in range(600)]  # more than one batch of deletes
    for start in range(0, 600, 200):
        shard.write(upsert(*ids[start : start + 200])).result(60)
    shard.write(replace(upsert("kept"), index_id="scenes-2")).result(60)
    shard.tunings.put("scenes", Modality.TEXT, IndexTuning("Flat"))
    shard.maintenance.snapshots.write("scenes", shard.index("scenes"))
    snapshots = tmp_path / "snapshots" / "scenes"
    assert snapshots.is_dir()

    dropped = shard.drop("scenes", deadline_time=float("inf"))

    assert (dropped.count, dropped.is_complete) == (600, True)
    assert list(shard.indexes()) == ["scenes-2"]
    with pytest.raises(IndexNotFound):
        shard.drop("scenes", deadline_time=float("inf"))
    end_time = time.monotonic() + 60
    while snapshots.exists():
        assert time.monotonic() < end_time
        time.sleep(0.01)
    shard.close()
    assert "scenes/" not in (tmp_path / "tuning.json").read_text()
    assert verify_in_child(tmp_path).is_sound
    shard = open_shard(tmp_path)
    assert list(shard.indexes()) == ["scenes-2"]
    # Its name, and another model, are free again.
    shard.write(upsert("new", fingerprint="model-b")).result(60)
    assert shard.index("scenes").item_count(Modality.TEXT) == 1
    shard.close()


def test_a_drop_without_time_deletes_a_part_and_can_continue(shard: StoredShard) -> None:
    """The index stays until it is empty; a search finds the rest."""
    ids = [f"item-{n:03}" for n in range(300)]
    for start in (0, 150):
        shard.write(upsert(*ids[start : start + 150])).result(60)

    first = shard.drop("scenes", deadline_time=0.0)
    left = found(shard)
    second = shard.drop("scenes", deadline_time=0.0)
    third = shard.drop("scenes", deadline_time=0.0)

    assert (first.count, first.is_complete) == (256, False)
    assert len(left) == 44
    assert (second.count, second.is_complete) == (44, False)
    assert (third.count, third.is_complete) == (0, True)


def test_an_index_that_takes_items_is_not_dropped(shard: StoredShard) -> None:
    """A drop that found no item does not lose an acknowledged one."""
    shard.write(upsert("a")).result(60)

    assert not shard.write(Drop("scenes")).result(60).is_dropped
    assert found(shard) == ["a"]


def until_taken(shard: StoredShard, write: ItemWrite) -> Committed:
    """Repeats the write until it is committed."""
    end_time = time.monotonic() + 60
    while time.monotonic() < end_time:
        try:
            return shard.write(write).result(60)
        except (ServiceUnavailable, StoreFull):
            time.sleep(0.02)
    raise AssertionError("the shard did not recover")


def test_more_indexes_than_the_setting_allows_are_refused(tmp_path: Path) -> None:
    """By name, and the indexes that exist take writes; without one of them there is room again."""
    shard = open_shard(tmp_path, ShardSettings(max_index_count=2))

    def put(index_id: str) -> None:
        shard.write(Upsert(index_id, FINGERPRINT, [text_item("a", 1)])).result(60)

    put("one")
    put("two")

    with pytest.raises(StoreFull, match=r"2 indexes; .*INDEX_MAX_INDEX_COUNT"):
        put("three")
    put("one")
    assert shard.drop("two", time.monotonic() + 60).is_complete
    put("three")

    assert sorted(shard.indexes()) == ["one", "three"]
    shard.close()


def test_an_empty_index_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        made = [SearchableIndex(IndexInfo(FINGERPRINT, 192)) for _ in range(100)]
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(made) * 1_000 < used_bytes < len(made) * 20_000
