"""Tests that each write of an item has its own version, which is read without the item."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.errors import ItemCorrupt
from tandem.local.item_store.checksum import seal
from tandem.local.item_store.item_record import RecordView, item_key, item_version, pack_item
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item
from tests.support.item_store.stored_values import overwrite, stored_value

KEY = item_key("scenes", "a")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ItemStore]:
    store = ItemStore.open(tmp_path / "shard", 0, 1, map_bytes=16 << 20)
    yield store
    store.close()


def upsert(store: ItemStore, *items: ItemRecord) -> None:
    store.apply([Upsert("scenes", FINGERPRINT, items)])


def test_each_write_has_another_version(store: ItemStore) -> None:
    versions: list[int | None] = []
    for _ in range(3):
        upsert(store, text_item("a", 1), image_item("b", 2))
        versions += store.read_versions("scenes", ["a", "b", "nobody"])
    store.apply([Delete("scenes", ["a"])])
    assert store.read_versions("scenes", ["b", "a"]) == [versions[-2], None]
    upsert(store, text_item("a", 1))
    versions += store.read_versions("scenes", ["a"])

    assert versions[2::3] == [None] * 3
    told = [version for version in versions if version is not None]
    assert len(set(told)) == len(told) == 7


def test_tokens_have_the_reported_version(store: ItemStore) -> None:
    upsert(store, text_item("a", 1), image_item("b", 2))

    stored = store.read_stored_tokens("scenes", ["b", "nobody", "a"])

    versions = [None if tokens is None else tokens.version for tokens in stored]
    assert versions == store.read_versions("scenes", ["b", "nobody", "a"])
    assert None not in (versions[0], versions[2])


@given(st.lists(st.integers(1, 2**40), min_size=2, max_size=2, unique=True), st.integers(0, 9))
def test_versions_of_two_writes_differ(sequences: list[int], seed: int) -> None:
    values = [pack_item(KEY, text_item("a", seed), sequence) for sequence in sequences]

    versions = [item_version("a", value) for value in values]

    assert versions[0] != versions[1]
    assert versions == [RecordView("a", KEY, value).version for value in values]


def test_two_contents_under_one_sequence_have_different_versions() -> None:
    """This happens if a fault of the disk undid a write that a reader had seen."""
    one, other = (pack_item(KEY, text_item("a", seed), 7) for seed in (1, 2))

    assert item_version("a", one) != item_version("a", other)


@pytest.mark.parametrize("value", [b"abc", seal(KEY, b"TDMI\x09\x00" + bytes(60))])
def test_a_value_that_is_not_a_record_has_no_version(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "shard"
    store = ItemStore.open(path, 0, 1, map_bytes=16 << 20)
    upsert(store, text_item("a"))
    store.close()
    assert stored_value(path, "items", KEY) != value
    overwrite(path, "items", KEY, value)

    store = ItemStore.open(path, 0, 1, map_bytes=16 << 20)
    with pytest.raises(ItemCorrupt):
        store.read_versions("scenes", ["a"])
    store.close()
