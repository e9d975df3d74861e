"""Tests that damaged values are caught when they are read."""

from pathlib import Path

import pytest

from tandem.errors import (
    ItemCorrupt,
)
from tandem.local.item_store.checksum import seal
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item
from tests.support.item_store.made_stores import MAP_BYTES
from tests.support.item_store.stored_values import overwrite, stored_value


@pytest.mark.parametrize("offset", [0, 20, -1])
def test_a_flipped_bit_is_caught(path: Path, offset: int) -> None:
    """Reading the item fails wherever the bit is, and its neighbour is still read."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a"), text_item("b")])])
    store.close()
    key = item_key("scenes", "a")
    value = bytearray(stored_value(path, "items", key))
    value[offset] ^= 0x10
    overwrite(path, "items", key, bytes(value))

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    for read in (store.read_items, store.read_stored_tokens):
        with pytest.raises(ItemCorrupt) as caught:
            read("scenes", ["a"])
        assert caught.value.metadata["item_id"] == "a"
    assert store.read_items("scenes", ["b"]) != [None]
    damaged, sound = store.scan_embeddings("scenes")
    assert isinstance(damaged, ItemCorrupt)
    assert isinstance(sound, StoredEmbedding)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 9)])])
    assert store.read_items("scenes", ["a"]) != [None]
    store.close()


@pytest.mark.parametrize("value", [b"xy", seal(b"scenes\0a", b"sealed, no record")])
def test_a_value_that_is_not_a_record_is_caught(path: Path, value: bytes) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a")])])
    store.close()
    overwrite(path, "items", item_key("scenes", "a"), value)

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    with pytest.raises(ItemCorrupt):
        store.read_items("scenes", ["a"])
    store.close()


def test_a_value_under_another_key_is_caught(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 1), text_item("b", 2)])])
    store.close()
    overwrite(
        path, "items", item_key("scenes", "a"), stored_value(path, "items", item_key("scenes", "b"))
    )

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    with pytest.raises(ItemCorrupt):
        store.read_items("scenes", ["a"])
    store.close()
