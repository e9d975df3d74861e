"""Tests the gauges of a shard: ages, free space, and no sample for what is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import Modality
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.metrics import LIST_IMBALANCE
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.upkeep import maintenance
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item

INDEX_ID = "pets"


def value(name: str, shard: str = "0") -> float | None:
    """Returns a gauge of the scrape; None if it has no sample."""
    return REGISTRY.get_sample_value(f"tandem_index_{name}", {"shard": shard})


def opened(folder: Path, number: int = 0, count: int = 1) -> StoredShard:
    """Returns a loaded shard."""
    store = ItemStore.open(folder, number, count, map_bytes=64 << 20)
    shard = StoredShard(store, folder)
    shard.load()
    return shard


def upsert(shard: StoredShard, *item_ids: str) -> None:
    items = [text_item(item_id, seed) for seed, item_id in enumerate(item_ids)]
    shard.write(Upsert(INDEX_ID, FINGERPRINT, items)).result(60)


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs background work only in the test's steps."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)


def test_a_shard_tells_its_ages_and_its_room(tmp_path: Path) -> None:
    """Ages of the newest commit and snapshot, and what a start would have to replay."""
    shard = opened(tmp_path / "shard")
    try:
        assert value("commit_age_seconds") is None
        assert value("snapshot_age_seconds") is None
        upsert(shard, "one", "two", "three")
        assert value("unsaved_change_count") == 3
        assert value("store_limit_bytes") == 64 << 20
        assert (value("disk_free_bytes") or 0) > 1 << 20
        assert value("queued_write_count") == 0
        assert value("oldest_reader_age_seconds") == 0
        assert 0 <= (value("commit_age_seconds") or -1) < 10

        shard.maintenance.snapshots.write(INDEX_ID, shard.index(INDEX_ID))
        assert value("unsaved_change_count") == 0
        assert 0 <= (value("snapshot_age_seconds") or -1) < 10
    finally:
        shard.close()


def test_the_worst_index_tells_how_uneven_lists_are(tmp_path: Path) -> None:
    """The gauge is 1 if no index has lists, even if one had them before."""
    shard = opened(tmp_path / "shard")
    try:
        upsert(shard, "one")
        LIST_IMBALANCE.labels("0", "text").set(7.0)
        shard.maintenance.ask_rebuild(INDEX_ID, Modality.TEXT, "operator")
        assert shard.maintenance.step()
        ratio = REGISTRY.get_sample_value(
            "tandem_index_list_imbalance_ratio", {"shard": "0", "modality": "text"}
        )
        assert ratio == 1.0
    finally:
        shard.close()


def test_two_shards_of_a_process_have_series_of_their_own(tmp_path: Path) -> None:
    """So one that takes no writes shows next to one that does; it leaves with its own."""
    shards = [opened(tmp_path / str(number), number, 2) for number in range(2)]
    upsert(shards[1], "one", "two")
    shards[1].maintenance.snapshots.write(INDEX_ID, shards[1].index(INDEX_ID))
    upsert(shards[1], "three")
    try:
        assert [value("commit_age_seconds", shard) is None for shard in ("0", "1")] == [True, False]
        assert [value("unsaved_change_count", shard) for shard in ("0", "1")] == [0, 1]
        items = [
            REGISTRY.get_sample_value("tandem_index_items", {"shard": shard, "modality": "text"})
            for shard in ("0", "1")
        ]
        assert items == [0, 3]
        assert value("snapshot_sequence", "1")
    finally:
        shards[0].close()
    assert [value("queued_write_count", shard) for shard in ("0", "1")] == [None, 0]
    shards[1].close()
