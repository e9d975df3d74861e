"""Tests that a store is opened by its own shard and release, upgraded, or refused unchanged."""

import json
from pathlib import Path

import pytest

from tandem.errors import (
    ServiceUnavailable,
)
from tandem.local.item_store.checksum import seal
from tandem.local.item_store.files import SCHEMA_VERSION
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.verdict import verify_in_child
from tandem.stages.item_write import Committed, Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item
from tests.support.item_store.made_stores import MAP_BYTES
from tests.support.item_store.old_stores import make_version_2
from tests.support.item_store.stored_values import overwrite, stored_value


@pytest.mark.parametrize(("number", "count", "readonly"), [(1, 2, False), (0, 3, True)])
def test_another_shards_volume_is_refused(
    path: Path, number: int, count: int, readonly: bool
) -> None:
    ItemStore.open(path, 0, 2, map_bytes=MAP_BYTES).close()

    with pytest.raises(StoreRefused, match="is shard 0 of 2"):
        ItemStore.open(path, number, count, readonly, map_bytes=MAP_BYTES)

    ItemStore.open(path, 0, 2, readonly, map_bytes=MAP_BYTES).close()


@pytest.mark.parametrize(("number", "count"), [(1, 1), (-1, 1)])
def test_a_shard_that_cannot_be_is_refused(path: Path, number: int, count: int) -> None:
    with pytest.raises(StoreRefused, match="count from 0"):
        ItemStore.open(path, number, count)

    assert not path.exists()


def test_a_reader_waits_for_a_store_to_be_brought_to_ours(path: Path) -> None:
    make_version_2(path, [Upsert("scenes", FINGERPRINT, [text_item("a")])])
    with pytest.raises(ServiceUnavailable, match="older release"):
        ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES)
    assert verify_in_child(path).is_sound

    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()

    assert b'"schema_version":3' in stored_value(path, "meta", b"schema")
    ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES).close()


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION + 1])
def test_a_much_older_and_a_newer_schema_are_refused(path: Path, version: int) -> None:
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()
    other = {"schema_version": version, "shard_number": 0, "shard_count": 1, "new": 1}
    overwrite(path, "meta", b"schema", seal(b"schema", json.dumps(other).encode()))

    with pytest.raises(StoreRefused, match=f"version {version}.*reads 2 and {SCHEMA_VERSION}"):
        ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)


def test_a_reader_waits_for_a_store_to_be_made(path: Path) -> None:
    with pytest.raises(ServiceUnavailable):
        ItemStore.open(path, 0, 1, readonly=True)

    assert not path.exists()


def test_a_half_made_store_is_made_again(path: Path) -> None:
    (path / "making").mkdir(parents=True)
    (path / "making" / "data.mdb").write_bytes(b"half of it")

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    assert store.apply([Upsert("scenes", FINGERPRINT, [text_item("a")])]) == [Committed(1)]
    store.close()
    assert sorted(file.name for file in path.iterdir()) == ["data.mdb", "lock.mdb", "writer.lock"]
