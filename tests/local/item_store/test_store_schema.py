"""Tests that a store is opened by its own shard and release, upgraded, or refused unchanged."""

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import lmdb
import numpy as np
import pytest

from tandem.contract.content import ImageTokens, TextContent, TextTokens
from tandem.errors import (
    ServiceUnavailable,
)
from tandem.local.item_store.change_log import Change
from tandem.local.item_store.checksum import seal
from tandem.local.item_store.files import SCHEMA_VERSION
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.verdict import verify_in_child
from tandem.stages.item_write import Committed, Upsert
from tandem.stages.items import ItemRecord
from tests.support.item_store.made_items import DIMENSION, FINGERPRINT, image_item, text_item
from tests.support.item_store.made_stores import MAP_BYTES, changes, scanned
from tests.support.item_store.stored_values import overwrite, stored_value


def test_a_store_of_version_1_is_read_and_brought_to_ours(path: Path) -> None:
    """A reader waits for a writer, which upgrades it."""
    make_version_1(path, [text_item("a", 5), image_item("b", 6)])
    (path / "lock.mdb").touch()
    with pytest.raises(ServiceUnavailable, match="older release"):
        ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES)
    assert verify_in_child(path).is_sound

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    assert [item.item_id for item in scanned(store, "scenes")] == ["a", "b"]
    assert None not in store.read_versions("scenes", ["a", "b"])
    a, b = store.read_items("scenes", ["a", "b"])
    assert a is not None
    assert b is not None
    assert (a.content, a.attributes) == (TextContent("a of seed 5"), {})
    expected = image_item("b", 6).encoding
    np.testing.assert_array_equal(b.encoding.embedding, expected.embedding)
    assert isinstance(b.encoding.tokens, ImageTokens)
    assert isinstance(expected.tokens, ImageTokens)
    np.testing.assert_array_equal(b.encoding.tokens.values, expected.tokens.values)
    assert changes(store, 0) == [Change(n, "scenes", i, "upsert") for n, i in ((1, "a"), (2, "b"))]
    store_id = store.store_id
    assert len(store_id) == 32
    upsert = Upsert("scenes", FINGERPRINT, [replace(text_item("a"), attributes={"x": 1})], "r")
    assert store.apply([upsert, upsert]) == [Committed(3), Committed(3, is_repeat=True)]
    store.close()
    assert verify_in_child(path).is_sound
    assert b'"schema_version":3' in stored_value(path, "meta", b"schema")
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    assert store.store_id == store_id
    store.close()


def test_another_shards_store_of_version_1_is_left_as_it_was(path: Path) -> None:
    make_version_1(path, [text_item("a")])

    with pytest.raises(StoreRefused, match="is shard 0 of 1"):
        ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)

    assert b'"schema_version":1' in stored_value(path, "meta", b"schema")


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


def test_a_newer_schema_is_refused(path: Path) -> None:
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()
    newer = {"schema_version": SCHEMA_VERSION + 1, "shard_number": 0, "shard_count": 1, "new": 1}
    overwrite(path, "meta", b"schema", seal(b"schema", json.dumps(newer).encode()))

    with pytest.raises(StoreRefused, match=f"version {SCHEMA_VERSION + 1}.*reads {SCHEMA_VERSION}"):
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


def make_version_1(path: Path, items: Sequence[ItemRecord]) -> None:
    """Makes the files of the first release: schema 1, records 1, three databases."""
    path.mkdir()
    with lmdb.open(str(path), max_dbs=3) as env, env.begin(write=True) as txn:
        dbs = {name: env.open_db(name, txn=txn) for name in (b"items", b"log", b"meta")}
        meta = {
            b"schema": {"schema_version": 1, "shard_number": 0, "shard_count": 1},
            b"sequence": len(items),
            b"index/scenes": [FINGERPRINT, DIMENSION],
        }
        for key, value in meta.items():
            txn.put(
                key, seal(key, json.dumps(value, separators=(",", ":")).encode()), db=dbs[b"meta"]
            )
        for number, item in enumerate(items, 1):
            key, log_key = item_key("scenes", item.item_id), number.to_bytes(8, "big")
            change = json.dumps(["upsert", "scenes", item.item_id]).encode()
            txn.put(log_key, seal(log_key, change), db=dbs[b"log"])
            txn.put(key, seal(key, record_1(item, number)), db=dbs[b"items"])


def record_1(item: ItemRecord, sequence: int) -> bytes:
    """Returns an item's record in version 1."""
    tokens = item.encoding.tokens
    values = tokens.ids if isinstance(tokens, TextTokens) else tokens.values
    content = item.content
    header = {
        "modality": content.modality.value,
        "tokens_shape": values.shape,
        "sequence": sequence,
    }
    parts = (
        json.dumps(header).encode(),
        item.encoding.embedding.tobytes(),
        values.tobytes(),
        content.text.encode() if isinstance(content, TextContent) else content.image_bytes,
    )
    return struct.pack("<4sHHIIII", b"TDMI", 1, 0, *map(len, parts)) + b"".join(parts)
