"""Tests that background work changes how items are found, never which; tests call step()."""

import errno
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.contract.content import Encoding, ImageContent, ImageTokens, Modality
from tandem.contract.search_path import SearchFallback
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard import memory_limit
from tandem.local.shard.retrieval import embedding_rows, index_type
from tandem.local.shard.retrieval.arrays import F32
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.settings import ShardSettings
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.upkeep import maintenance, rebuild, snapshot
from tandem.local.shard.upkeep.index_loader import load_index
from tandem.local.shard.upkeep.snapshot import SnapshotManifest
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.retrieval import ShardQuery
from tests.support.item_store.made_items import FINGERPRINT, text_item, unit_vector

INDEX_ID = "scenes"
DIMENSION = 16
TOKENS = ImageTokens(np.zeros((1, 2), dtype=np.float16))


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredShard]:
    # Its thread does not run: the tests take the steps.
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    # So that small indexes are worth a FAISS index.
    monkeypatch.setattr(index_type, "MIN_APPROXIMATE_COUNT", 500)
    shard = open_shard(tmp_path)
    yield shard
    shard.close()


def open_shard(folder: Path, **settings: object) -> StoredShard:
    shard = StoredShard(
        ItemStore.open(folder, 0, 1, map_bytes=64 << 20),
        folder,
        replace(ShardSettings(snapshot_change_count=10**9), **settings),  # type: ignore[arg-type]
    )
    shard.load()
    return shard


def image_item(number: int, seed: int | None = None) -> ItemRecord:
    embedding = unit_vector(number if seed is None else seed, DIMENSION)
    content = ImageContent(str(number).encode())
    return ItemRecord(f"{number:05}", content, Encoding(embedding, TOKENS), {"number": number})


def ingest(shard: StoredShard, numbers: range, seed: int | None = None) -> None:
    for start in range(numbers.start, numbers.stop, 250):
        items = [
            image_item(number, seed) for number in range(start, min(start + 250, numbers.stop))
        ]
        shard.write(Upsert(INDEX_ID, FINGERPRINT, items)).result(60)


def delete(shard: StoredShard, numbers: range) -> None:
    shard.write(Delete(INDEX_ID, [f"{number:05}" for number in numbers])).result(60)


def found(shard: StoredShard, seed: int, k: int = 10) -> list[str]:
    found = shard.search(query_of(unit_vector(seed, DIMENSION), k)).found
    return [hit.item_id for hit in found[0].hits]


def query_of(embedding: F32, k: int = 10) -> ShardQuery:
    return ShardQuery(
        INDEX_ID, FINGERPRINT, Modality.IMAGE, Modality.TEXT, k, embeddings=[embedding]
    )


def nearest(shard: StoredShard, seed: int, k: int = 10) -> list[str]:
    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    return [hit.item_id for hit in part.frozen_scan()(unit_vector(seed, DIMENSION), k).hits]


def work(shard: StoredShard) -> None:
    shard.maintenance.note_change(INDEX_ID)  # for tunings, which are set here without a call
    while shard.maintenance.step():
        pass


def part_type(shard: StoredShard) -> str:
    return shard.index(INDEX_ID).part(Modality.IMAGE).index_type


def test_auto_builds_an_approximate_index_once_it_pays(shard: StoredShard) -> None:
    """Above the limit it is an IVF index, tuned to the recall target."""
    ingest(shard, range(400))
    work(shard)
    assert part_type(shard) == "Flat"

    ingest(shard, range(400, 1200))
    work(shard)

    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    assert part.index_type == "IVF64,SQ8"
    assert part.recall_percent is not None
    assert part.recall_percent >= 98
    assert len(set(found(shard, 5000)) & set(nearest(shard, 5000))) >= 8


@pytest.mark.parametrize(
    ("recall_target", "expected"), [(0.5, "IVF128,RaBitQfs"), (0.98, "IVF128,RaBitQfs,Refine(SQ8)")]
)
def test_auto_chooses_more_bytes_if_bits_do_not_reach_the_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recall_target: float, expected: str
) -> None:
    """One bit each of 16 values is too coarse for 0.98. The built index stays."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    monkeypatch.setattr(index_type, "MIN_APPROXIMATE_COUNT", 500)
    monkeypatch.setattr(index_type, "MIN_BIT_DIMENSION", DIMENSION)
    shard = open_shard(tmp_path, recall_target=recall_target)
    ingest(shard, range(2_500))
    work(shard)

    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    built = part.faiss_index
    assert part.index_type == expected
    assert part.recall_percent is not None
    assert part.recall_percent >= 100 * recall_target
    assert len(set(found(shard, 5000)) & set(nearest(shard, 5000))) >= 10 * recall_target - 1

    ingest(shard, range(2_500, 2_600))
    work(shard)
    assert part.faiss_index is built
    shard.close()


def test_rows_that_exceed_the_memory_are_held_as_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,500 x 16 values take 160,000 bytes as float32, and 80,000 as bytes of two indexes."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    monkeypatch.setattr(index_type, "MIN_APPROXIMATE_COUNT", 500)
    monkeypatch.setattr(index_type, "MIN_BIT_DIMENSION", DIMENSION)
    monkeypatch.setattr(memory_limit, "anonymous_bytes", lambda: 0)
    for limit_bytes, expected in ((161_000, ""), (100_000, ",Refine(SQ8)"), (79_000, "")):
        shard = open_shard(tmp_path / str(limit_bytes), recall_target=0.5, memory_bytes=limit_bytes)
        ingest(shard, range(2_500))
        work(shard)

        assert part_type(shard) == f"IVF128,RaBitQfs{expected}"
        shard.close()


def test_the_tail_is_folded_in(shard: StoredShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer items are found before and after."""
    monkeypatch.setattr(rebuild, "_FOLD_COUNT", 50)
    ingest(shard, range(1000))
    work(shard)
    ingest(shard, range(1000, 1100))
    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    assert part.tail_count == 100
    assert found(shard, 1050, 1) == ["01050"]

    work(shard)

    assert part.tail_count == 0
    assert found(shard, 1050, 1) == ["01050"]


def test_a_snapshot_follows_a_fold_of_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each start from the one before would add the same rows again."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    monkeypatch.setattr(index_type, "MIN_APPROXIMATE_COUNT", 500)
    monkeypatch.setattr(rebuild, "_FOLD_COUNT", 50)
    shard = open_shard(tmp_path, snapshot_change_count=500)
    ingest(shard, range(1000))
    work(shard)
    ingest(shard, range(1000, 1400))
    shard.maintenance.snapshots.write(INDEX_ID, shard.index(INDEX_ID))

    work(shard)

    [manifest] = (tmp_path / "snapshots" / INDEX_ID).glob("image-*/manifest.json")
    assert SnapshotManifest.read(manifest.parent).index_row_count == 1400
    shard.close()


def test_searches_and_changes_need_not_wait_for_the_whole_tail(
    shard: StoredShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail is folded in a row at a time here, and each of two threads gets its turns."""
    ingest(shard, range(1000))
    work(shard)
    ingest(shard, range(1000, 2000))
    monkeypatch.setattr(rebuild, "_FIRST_SLICE_COUNT", 1)
    monkeypatch.setattr(rebuild, "_FOLD_SLICE_SECONDS", 0)
    index = shard.index(INDEX_ID)
    turn_counts, is_over = Counter[str](), threading.Event()

    def take_turns(name: str, lock: Callable[[], AbstractContextManager[None]]) -> None:
        while not is_over.is_set():
            with lock():
                turn_counts[name] += 1
            time.sleep(0.001)

    locks = {"search": index.reading, "change": index.changing}
    threads = [threading.Thread(target=take_turns, args=each) for each in locks.items()]
    for thread in threads:
        thread.start()
    rebuild.fold(index, Modality.IMAGE, lambda: False)
    is_over.set()
    for thread in threads:
        thread.join()

    assert index.part(Modality.IMAGE).tail_count == 0
    assert min(turn_counts[name] for name in locks) > 10


def test_an_index_that_takes_no_rows_is_rebuilt_after_many_additions(
    shard: StoredShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAISS adds no rows to an NSG; until a tenth is new the tail is compared one by one."""
    monkeypatch.setattr(rebuild, "_FOLD_COUNT", 50)
    shard.tunings.put(INDEX_ID, Modality.IMAGE, IndexTuning("NSG16"))
    ingest(shard, range(1000))
    work(shard)
    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    for new, tail_count in ((range(1000, 1080), 80), (range(1080, 1120), 0)):
        ingest(shard, new)

        work(shard)

        assert (part.index_type, part.tail_count) == ("NSG16", tail_count)
        assert found(shard, new[-1], 1) == [f"{new[-1]:05}"]


def test_many_dead_rows_are_compacted(shard: StoredShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced and deleted rows go; items and attributes stay."""
    monkeypatch.setattr(rebuild, "_MIN_DEAD_COUNT", 100)
    ingest(shard, range(1000))
    work(shard)
    ingest(shard, range(400))
    delete(shard, range(900, 1000))
    before = [nearest(shard, seed) for seed in range(20)]
    assert shard.index(INDEX_ID).part(Modality.IMAGE).rows.dead_count == 500
    monkeypatch.setattr(rebuild, "BLOCK_ROW_COUNT", 400)
    monkeypatch.setattr(rebuild, "_COPY_COUNT", 400)

    work(shard)

    rows = shard.index(INDEX_ID).part(Modality.IMAGE).rows
    assert (rows.row_count, rows.unsaved_count) == (900, 100)  # never all in memory
    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    assert (part.rows.dead_count, len(part)) == (0, 900)
    assert len(part.attributes) == 900
    assert [nearest(shard, seed) for seed in range(20)] == before
    for seed, items in enumerate(before):
        assert len(set(found(shard, seed)) & set(items)) >= 8


def test_rows_saved_during_a_compaction_stay_those_of_their_items(
    shard: StoredShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may put mapped rows in the place of those that are being copied."""
    monkeypatch.setattr(rebuild, "_MIN_DEAD_COUNT", 100)
    monkeypatch.setattr(embedding_rows, "BLOCK_ROW_COUNT", 100)
    ingest(shard, range(600))
    delete(shard, range(200, 400))
    before = [nearest(shard, seed) for seed in range(20)]
    index = shard.index(INDEX_ID)

    class Wanted(np.ndarray[Any, Any]):
        """Has the rows saved between two looks of one reader, as the other thread would."""

        def max(self, *arguments: Any, **options: Any) -> Any:
            index.save_rows(1)
            return super().max(*arguments, **options)

    gather = EmbeddingRows.gather
    monkeypatch.setattr(
        EmbeddingRows, "gather", lambda rows, wanted: gather(rows, wanted.view(Wanted))
    )

    work(shard)

    assert index.part(Modality.IMAGE).rows.dead_count == 0
    assert [nearest(shard, seed) for seed in range(20)] == before


def test_changes_during_a_compaction_are_kept(
    shard: StoredShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new index has the changes that were made during its build."""
    monkeypatch.setattr(rebuild, "_MIN_DEAD_COUNT", 100)
    ingest(shard, range(1000))
    work(shard)
    ingest(shard, range(500))
    build = FaissIndex.build

    def build_while_changing(*arguments: object, **options: object) -> object:
        ingest(shard, range(1000, 1010))
        ingest(shard, range(10), seed=7777)
        delete(shard, range(20, 30))
        return build(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FaissIndex, "build", build_while_changing)

    work(shard)

    assert shard.index(INDEX_ID).part(Modality.IMAGE).rows.dead_count < 100
    assert found(shard, 1005, 1) == ["01005"]
    assert sorted(found(shard, 7777, 10)) == [f"{number:05}" for number in range(10)]
    assert not {f"{n:05}" for n in range(20, 30)} & set(found(shard, 1, 1000))


def test_during_a_build_a_search_reports_a_scan(
    shard: StoredShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops saying so after the build; a rebuilt index serves meanwhile."""
    ingest(shard, range(600))
    query = query_of(unit_vector(1, DIMENSION))
    build = FaissIndex.build
    told: list[SearchFallback] = []

    def build_while_searching(*arguments: object, **options: object) -> object:
        told.append(shard.search(query).found[0].path.fallback.kind)
        return build(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FaissIndex, "build", build_while_searching)

    work(shard)
    shard.tunings.put(INDEX_ID, Modality.IMAGE, IndexTuning(index_type="IVF16,Flat"))
    work(shard)

    assert told == [SearchFallback.BEING_BUILT, SearchFallback.NONE]
    assert shard.search(query).found[0].path.fallback_reason == ""


def test_a_snapshot_and_the_changes_since_give_the_same_index(
    shard: StoredShard, tmp_path: Path
) -> None:
    """Deleted and replaced items are included."""
    ingest(shard, range(1000))
    shard.write(Upsert(INDEX_ID, FINGERPRINT, [text_item("text", 3, DIMENSION)])).result(60)
    work(shard)
    shard.maintenance.snapshots.write(INDEX_ID, shard.index(INDEX_ID))
    ingest(shard, range(1000, 1050))
    ingest(shard, range(10), seed=7777)
    delete(shard, range(100, 200))
    before = [found(shard, seed) for seed in range(0, 1000, 50)]
    shard.close()

    store = ItemStore.open(tmp_path, 0, 1, map_bytes=64 << 20)
    loaded = load_index(store, INDEX_ID, tmp_path / "snapshots")

    assert loaded.snapshot_sequence == 1001
    part = loaded.index.part(Modality.IMAGE)
    assert part.index_type == "IVF64,SQ8"
    assert len(part) == 950
    assert loaded.index.item_count(Modality.TEXT) == 1
    after = [
        [hit.item_id for hit in part.search(unit_vector(seed, DIMENSION), 10).hits]
        for seed in range(0, 1000, 50)
    ]
    assert after == before
    store.close()


def test_rows_written_after_a_snapshot_come_from_the_store(
    shard: StoredShard, tmp_path: Path
) -> None:
    """Its file has them, but no snapshot has their checksum."""
    ingest(shard, range(600))
    work(shard)
    index = shard.index(INDEX_ID)
    shard.maintenance.snapshots.write(INDEX_ID, index)
    ingest(shard, range(600, 700))
    before = [nearest(shard, seed) for seed in range(600, 620)]
    index.save_rows(1)
    assert [nearest(shard, seed) for seed in range(600, 620)] == before
    rows = index.part(Modality.IMAGE).rows
    assert (rows.file and rows.file.row_count, rows.unsaved_count) == (700, 0)
    shard.close()

    shard = open_shard(tmp_path)

    rows = shard.index(INDEX_ID).part(Modality.IMAGE).rows
    assert (rows.file and rows.file.row_count, rows.unsaved_count) == (600, 100)
    assert [nearest(shard, seed) for seed in range(600, 620)] == before
    shard.close()


@pytest.mark.parametrize("field", ["store_id", "fingerprint"])
def test_a_snapshot_of_another_index_is_not_opened(
    shard: StoredShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """It is intact, but of another store or model; the index is read from the store instead."""
    ingest(shard, range(100))
    shard.maintenance.snapshots.write(INDEX_ID, shard.index(INDEX_ID))
    shard.close()
    store = ItemStore.open(tmp_path, 0, 1, map_bytes=64 << 20)
    assert load_index(store, INDEX_ID, tmp_path / "snapshots").snapshot_sequence == 100
    if field == "store_id":
        monkeypatch.setattr(ItemStore, "store_id", property(lambda _: "another"))
    else:
        info = replace(store.index_info(INDEX_ID), fingerprint="another")
        monkeypatch.setattr(ItemStore, "index_info", lambda *_: info)

    loaded = load_index(store, INDEX_ID, tmp_path / "snapshots")

    assert loaded.snapshot_sequence is None
    assert loaded.index.item_count(Modality.IMAGE) == 100
    store.close()


def test_snapshots_are_written_when_enough_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the newest is kept."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    shard = open_shard(tmp_path, snapshot_change_count=100)
    folder = tmp_path / "snapshots" / INDEX_ID
    ingest(shard, range(99))
    work(shard)
    assert not folder.exists()

    ingest(shard, range(99, 110))
    work(shard)
    assert sorted(path.name[:6] for path in folder.iterdir()) == ["image-", "text-0"]

    ingest(shard, range(110, 500))
    work(shard)
    assert {path.name[-5:] for path in folder.iterdir()} == {"00500"}
    shard.close()


def test_an_index_that_was_built_is_in_the_next_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No item changed since the last snapshot, but each start would build it again."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    shard = open_shard(tmp_path, snapshot_change_count=600)
    ingest(shard, range(600))
    work(shard)
    shard.tunings.put(INDEX_ID, Modality.IMAGE, IndexTuning("IVF4,Flat", {"nprobe": 4}))
    work(shard)
    shard.close()

    store = ItemStore.open(tmp_path, 0, 1, map_bytes=64 << 20)
    loaded = load_index(store, INDEX_ID, tmp_path / "snapshots")

    assert loaded.index.part(Modality.IMAGE).index_type == "IVF4,Flat"
    store.close()


def test_searches_done_again_take_a_small_share_of_the_time(shard: StoredShard) -> None:
    ingest(shard, range(400))
    query = unit_vector(1, DIMENSION)
    for _ in range(20):
        shard.live_recall.keep(query_of(query))

    work(shard)

    assert shard.live_recall.recall()["text_to_image"][1] < 20


def test_a_snapshot_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous one stays, and both halves are tried again."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    shard = open_shard(tmp_path, snapshot_change_count=100)
    ingest(shard, range(100))
    work(shard)
    ingest(shard, range(100, 300))
    folder = tmp_path / "snapshots" / INDEX_ID
    before = sorted(folder.iterdir())
    write = snapshot.SnapshotManifest.write

    def fail_for_images(manifest: snapshot.SnapshotManifest, path: Path) -> None:
        if manifest.modality == "image":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(manifest, path)

    monkeypatch.setattr(snapshot.SnapshotManifest, "write", fail_for_images)
    with pytest.raises(ExceptionGroup):
        shard.maintenance.step()
    assert not list(folder.glob("*.partial"))
    assert set(before) < set(folder.iterdir())
    monkeypatch.setattr(snapshot.SnapshotManifest, "write", write)

    work(shard)

    assert {path.name[-3:] for path in folder.iterdir()} == {"300"}
    (folder / "image-00000000000000000400.partial").mkdir()
    shard.close()
    store = ItemStore.open(tmp_path, 0, 1, map_bytes=64 << 20)
    assert load_index(store, INDEX_ID, tmp_path / "snapshots").snapshot_sequence == 300
    assert not list(folder.glob("*.partial"))
    store.close()


def test_fallen_recall_triggers_a_rebuild(shard: StoredShard) -> None:
    """nprobe was lowered without changing the tuning."""
    ingest(shard, range(2000))
    work(shard)
    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    assert part.faiss_index is not None
    tuned = dict(part.faiss_index.parameters)
    part.faiss_index.tune({"nprobe": 1})
    measure(shard, 100)
    [(direction, (recall, count))] = shard.live_recall.recall().items()
    assert direction == "text_to_image"
    assert recall < 0.8
    assert count == 100

    work(shard)

    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    assert part.faiss_index is not None
    assert part.faiss_index.parameters == tuned
    measure(shard, 100)
    assert shard.live_recall.recall()["text_to_image"][0] >= 0.95


def test_pinned_parameters_are_measured_and_kept(shard: StoredShard) -> None:
    """Recall falls and is exported, but the parameters stay."""
    ingest(shard, range(2000))
    work(shard)
    part = shard.index(INDEX_ID).part(Modality.IMAGE)
    pinned = IndexTuning(index_type=part.index_type, parameters={"nprobe": 1})
    shard.tunings.put(INDEX_ID, Modality.IMAGE, pinned)
    assert part.faiss_index is not None
    part.faiss_index.tune(pinned.parameters)

    measure(shard, 100)
    work(shard)

    assert shard.live_recall.recall()["text_to_image"][0] < 0.8
    assert part.faiss_index.parameters == {"nprobe": 1}


def measure(shard: StoredShard, count: int) -> None:
    for seed in range(10_000, 10_000 + count):
        query = unit_vector(seed, DIMENSION)
        part = shard.index(INDEX_ID).part(Modality.IMAGE)
        shard.live_recall.note(
            query_of(query), part.search(query, 10).hits, part.frozen_scan()(query, 10).hits
        )


def test_indexes_without_changes_cost_no_work(shard: StoredShard) -> None:
    """As many calls for 40 as for one; an index that changes is looked at again."""

    def put(number: int) -> None:
        shard.write(Upsert(f"index-{number}", FINGERPRINT, [text_item("a", 1)])).result(60)

    def calls_of_a_step() -> int:
        counts: Counter[str] = Counter()
        sys.setprofile(lambda _frame, event, _of: counts.update([event]))
        try:
            shard.maintenance.step()
        finally:
            sys.setprofile(None)
        return counts["call"]

    put(0)
    assert calls_of_a_step() > (idle := calls_of_a_step())
    for number in range(1, 40):
        put(number)
    assert calls_of_a_step() > 10 * idle

    assert calls_of_a_step() == idle
    put(20)
    assert idle < calls_of_a_step() < 5 * idle
