"""Tests that the change log returns every change since a sequence in order, or refuses."""

from pathlib import Path

import lmdb
import pytest

from tandem.errors import (
    ItemCorrupt,
)
from tandem.local.item_store.change_log import Change
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Committed, Delete, Drop, Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item, upserts_of
from tests.support.item_store.made_stores import MAP_BYTES, changes


def test_changes_since_a_sequence_are_returned_in_order(store: ItemStore) -> None:
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a"), text_item("b")])])
    store.apply([Delete("scenes", ["a", "nobody"]), Upsert("z", FINGERPRINT, [text_item("a")])])

    assert changes(store, 0) == [
        Change(1, "scenes", "a", "upsert"),
        Change(2, "scenes", "b", "upsert"),
        Change(3, "scenes", "a", "delete"),
        Change(4, "z", "a", "upsert"),
    ]
    assert changes(store, 3) == [Change(4, "z", "a", "upsert")]
    assert changes(store, 4) == []
    # A sequence of another history of this shard, before it was restored for example.
    assert changes(store, 5) is None


def test_the_drop_of_an_index_is_a_change_after_the_deletes_of_its_items(store: ItemStore) -> None:
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a")])])

    refused, deleted, dropped = store.apply(
        [Drop("scenes"), Delete("scenes", ["a"]), Drop("scenes")]
    )
    store.apply([Upsert("scenes", "another-model", [text_item("a")])])

    assert [refused, deleted, dropped] == [
        Committed(1),
        Committed(2, deleted_count=1),
        Committed(3, is_dropped=True),
    ]
    assert changes(store, 1) == [
        Change(2, "scenes", "a", "delete"),
        Change(3, "scenes", "", "drop"),
        Change(4, "scenes", "a", "upsert"),
    ]


def test_changes_beyond_one_transaction_are_returned(store: ItemStore) -> None:
    items = [text_item(f"{number:04}") for number in range(1300)]
    store.apply(upserts_of(items))

    found = changes(store, 7)

    assert found is not None
    assert [change.sequence for change in found] == list(range(8, 1301))


def test_trimmed_changes_are_not_returned_in_part(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES, kept_log_count=3)
    assert changes(store, 0) == []
    for seed in range(5):
        store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", seed)])])

    assert changes(store, 1) is None
    assert changes(store, 2) == [Change(n, "scenes", "a", "upsert") for n in (3, 4, 5)]
    assert changes(store, 5) == []
    store.close()
    with lmdb.open(str(path), max_dbs=3) as env, env.begin() as txn:
        keys = [int.from_bytes(key) for key, _ in txn.cursor(env.open_db(b"log", txn=txn))]
    assert keys == [3, 4, 5]


def test_a_gap_in_the_change_log_is_reported(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item(i) for i in "abc"])])
    store.close()
    with lmdb.open(str(path), max_dbs=6) as env, env.begin(write=True) as txn:
        txn.delete((2).to_bytes(8, "big"), db=env.open_db(b"log", txn=txn))

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    with pytest.raises(ItemCorrupt, match="change 2"):
        changes(store, 0)
    store.close()
