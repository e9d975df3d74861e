"""The item store keeps what it was given, or says that it did not."""

import json
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest

from tandem.content import ImageTokens, Modality, TextContent, TextTokens
from tandem.corpus.checksum import seal
from tandem.corpus.item_record import item_key
from tandem.corpus.item_store import IndexInfo, ItemStore, StoredEmbedding
from tandem.corpus.item_write import Committed, Delete, Upsert
from tandem.corpus.store_files import SCHEMA_VERSION, StoreRefused
from tandem.errors import (
    EmbeddingInvalid,
    IndexNotFound,
    ItemCorrupt,
    ModelMismatch,
    ServiceUnavailable,
    StoreFull,
)
from tests.corpus.made_items import DIMENSION, FINGERPRINT, image_item, text_item, unit_vector
from tests.corpus.stored_values import overwrite, stored_value

MAP_BYTES = 16 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shard"


@pytest.fixture
def store(path: Path) -> Iterator[ItemStore]:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    yield store
    store.close()


def test_items_come_back_as_they_went_in(store: ItemStore) -> None:
    """Content, embedding and tokens of both modalities are read back unchanged."""
    text, image = text_item("t/ünï ☃", 7), image_item("i", 8)

    assert store.apply([Upsert("scenes", FINGERPRINT, [text, image])]) == [Committed(2)]

    got_image, missing, got_text = store.read_items("scenes", ["i", "nobody", "t/ünï ☃"])
    assert missing is None
    assert got_text is not None
    assert got_image is not None
    assert (got_text.item_id, got_text.content) == (text.item_id, text.content)
    assert (got_image.item_id, got_image.content) == (image.item_id, image.content)
    np.testing.assert_array_equal(got_image.encoding.embedding, image.encoding.embedding)
    image_tokens, text_tokens = store.read_tokens("scenes", ["i", "t/ünï ☃"])
    assert isinstance(image_tokens, ImageTokens)
    assert isinstance(text_tokens, TextTokens)
    assert isinstance(image.encoding.tokens, ImageTokens)
    np.testing.assert_array_equal(image_tokens.values, image.encoding.tokens.values)
    np.testing.assert_array_equal(text_tokens.ids, [101, 7, 102])
    assert (image_tokens.values.dtype, text_tokens.ids.dtype) == (np.float16, np.int32)


def test_an_upsert_replaces_and_a_delete_removes(store: ItemStore) -> None:
    """The last write of an id wins, and the change log counts every change."""
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 1), text_item("b", 1)])])
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 2)])])

    outcome = store.apply([Delete("scenes", ["b", "nobody", "b"])])

    assert outcome == [Committed(4, deleted_count=1)]
    a, b = store.read_items("scenes", ["a", "b"])
    assert a is not None
    assert a.content == TextContent("a of seed 2")
    assert b is None
    assert store.sequence() == 4


def test_an_index_comes_with_its_first_upsert(store: ItemStore) -> None:
    """An index adopts its first upsert's fingerprint and dimension, and keeps them when emptied."""
    with pytest.raises(IndexNotFound):
        store.index_fingerprint("scenes")
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a")])])
    store.apply([Delete("scenes", ["a"])])

    assert store.index_ids() == ["scenes"]
    assert store.index_info("scenes") == IndexInfo(FINGERPRINT, DIMENSION)
    assert store.read_tokens("scenes", ["a"]) == [None]


def test_a_write_that_does_not_fit_its_index_is_left_out_alone(store: ItemStore) -> None:
    """Each refused write has its error in its place; the others are stored."""
    outcomes = store.apply(
        [
            Upsert("scenes", FINGERPRINT, [text_item("a")]),
            Upsert("scenes", "model-b", [text_item("b")]),
            Upsert("scenes", FINGERPRINT, [text_item("c", dimension=4)]),
            Delete("nowhere", ["a"]),
            Upsert("scenes", FINGERPRINT, [text_item("d")]),
        ]
    )

    assert [type(outcome) for outcome in outcomes] == [
        Committed,
        ModelMismatch,
        EmbeddingInvalid,
        IndexNotFound,
        Committed,
    ]
    assert isinstance(outcomes[1], ModelMismatch)
    assert outcomes[1].metadata == {
        "request_fingerprint": "model-b",
        "index_fingerprint": FINGERPRINT,
    }
    found = store.read_items("scenes", ["a", "b", "c", "d"])
    assert [item is not None for item in found] == [True, False, False, True]


def test_indexes_do_not_see_each_other(store: ItemStore) -> None:
    """An index whose id begins like another's holds its own items alone."""
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 1)])])
    store.apply([Upsert("scenes-2", "model-b", [text_item("a", 2, 4), text_item("b", 3, 4)])])

    assert [item.item_id for item in scanned(store, "scenes")] == ["a"]
    assert [item.item_id for item in scanned(store, "scenes-2")] == ["a", "b"]
    assert store.index_ids() == ["scenes", "scenes-2"]


def test_a_scan_gives_every_item_once_across_its_transactions(store: ItemStore) -> None:
    """A scan of more items than one transaction reads goes on where the last ended."""
    item_ids = [f"{number:05}" for number in range(1300)]
    items = [text_item(item_id, int(item_id)) for item_id in item_ids]
    store.apply([Upsert("scenes", FINGERPRINT, items), Upsert("z", FINGERPRINT, items[:1])])

    found = scanned(store, "scenes")

    assert [item.item_id for item in found] == item_ids
    assert {item.modality for item in found} == {Modality.TEXT}
    np.testing.assert_array_equal(found[-1].embedding, unit_vector(1299))


def test_everything_is_there_after_opening_anew(path: Path) -> None:
    """A store closed and opened again has its items, indexes and sequence."""
    first = ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)
    first.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 5)])])
    first.close()

    second = ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)

    assert second.sequence() == 1
    (item,) = second.read_items("scenes", ["a"])
    assert item is not None
    assert item.content == TextContent("a of seed 5")
    second.close()


@pytest.mark.parametrize("offset", [0, 3, 4, 20, 60, 90, -1])
def test_a_flipped_bit_is_caught(path: Path, offset: int) -> None:
    """Wherever in a value a bit flips, reading the item says so and its neighbour is still read."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a"), text_item("b")])])
    store.close()
    key = item_key("scenes", "a")
    value = bytearray(stored_value(path, "items", key))
    value[offset] ^= 0x10
    overwrite(path, "items", key, bytes(value))

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    for read in (store.read_items, store.read_tokens):
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


@pytest.mark.parametrize(
    "value", [b"", b"xy", b"\0" * 12, seal(b"scenes\0a", b"sealed, no record")]
)
def test_a_value_that_is_no_record_is_caught(path: Path, value: bytes) -> None:
    """A truncated, zeroed or foreign value is ItemCorrupt, never another exception."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a")])])
    store.close()
    overwrite(path, "items", item_key("scenes", "a"), value)

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    with pytest.raises(ItemCorrupt):
        store.read_items("scenes", ["a"])
    store.close()


def test_a_value_under_another_key_is_caught(path: Path) -> None:
    """A sound value that turns up in another item's place is not served as that item."""
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


@pytest.mark.parametrize(("number", "count"), [(1, 2), (0, 3), (0, 1)])
@pytest.mark.parametrize("readonly", [False, True])
def test_another_shards_volume_is_refused(
    path: Path, number: int, count: int, readonly: bool
) -> None:
    """A volume opened as another shard, or as one of another number of shards, is refused."""
    ItemStore.open(path, 0, 2, map_bytes=MAP_BYTES).close()

    with pytest.raises(StoreRefused, match="is shard 0 of 2"):
        ItemStore.open(path, number, count, readonly, map_bytes=MAP_BYTES)

    ItemStore.open(path, 0, 2, readonly, map_bytes=MAP_BYTES).close()


@pytest.mark.parametrize(("number", "count"), [(1, 1), (-1, 1), (0, 0)])
def test_a_shard_that_cannot_be_is_refused(path: Path, number: int, count: int) -> None:
    """Shards count from 0, and nothing is made for one past the end."""
    with pytest.raises(StoreRefused, match="count from 0"):
        ItemStore.open(path, number, count)

    assert not path.exists()


def test_a_newer_schema_is_refused(path: Path) -> None:
    """A store written by a newer program is refused by name of both versions."""
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()
    newer = {"schema_version": SCHEMA_VERSION + 1, "shard_number": 0, "shard_count": 1, "new": 1}
    overwrite(path, "meta", b"schema", seal(b"schema", json.dumps(newer).encode()))

    with pytest.raises(StoreRefused, match=f"version {SCHEMA_VERSION + 1}.*reads {SCHEMA_VERSION}"):
        ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)


def test_a_damaged_schema_is_caught(path: Path) -> None:
    """The store's own notes are under checksums too."""
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()
    overwrite(path, "meta", b"schema", stored_value(path, "meta", b"schema").replace(b"0", b"1"))

    with pytest.raises(ItemCorrupt, match="meta schema"):
        ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)


def test_a_reader_waits_for_a_store_to_be_made(path: Path) -> None:
    """Opening to read before anything is there says to retry, and leaves nothing behind."""
    with pytest.raises(ServiceUnavailable):
        ItemStore.open(path, 0, 1, readonly=True)

    assert not path.exists()


def test_a_reader_waits_for_a_store_half_made(path: Path) -> None:
    """Opening to read when LMDB's files are there, but not yet the databases, says to retry."""
    path.mkdir()
    lmdb.open(str(path)).close()

    with pytest.raises(ServiceUnavailable):
        ItemStore.open(path, 0, 1, readonly=True)


def test_a_full_map_refuses_what_does_not_fit_and_reads_go_on(path: Path) -> None:
    """On a full map only too large a write gets StoreFull; others of its batch are stored."""
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    stored_ids = fill(store)
    huge = Upsert("scenes", FINGERPRINT, [text_item(f"huge {n}", n, 4096) for n in range(99)])
    small = Delete("scenes", stored_ids[:1])

    outcomes = store.apply([small, Upsert("big", FINGERPRINT, huge.items), small])

    assert isinstance(outcomes[1], StoreFull)
    assert [type(outcome) for outcome in outcomes] == [Committed, StoreFull, Committed]
    found = store.read_items("scenes", stored_ids)
    assert [item is not None for item in found] == [False] + [True] * (len(stored_ids) - 1)
    store.close()


def test_a_full_map_takes_writes_again_once_items_are_deleted(path: Path) -> None:
    """Deleting works on a full map, frees room for new items, and needs no restart."""
    store = ItemStore.open(path, 0, 1, map_bytes=16 << 20)
    stored_ids = fill(store)

    # Scattered, so that each delete changes another page of items and frees none of it whole.
    outcomes = [store.apply([Delete("scenes", stored_ids[n::20][:256])])[0] for n in range(8)]

    assert [type(outcome) for outcome in outcomes] == [Committed] * 8
    (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, [text_item("new", 1, 256)])])
    assert isinstance(outcome, Committed)
    store.close()


def test_the_change_log_is_trimmed(path: Path) -> None:
    """The log keeps the newest changes only, so that replacing items for ever fills no disk."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES, kept_log_count=3)
    for seed in range(5):
        store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", seed)])])
    store.close()

    with lmdb.open(str(path), max_dbs=3) as env, env.begin() as txn:
        keys = [int.from_bytes(key) for key, _ in txn.cursor(env.open_db(b"log", txn=txn))]

    assert keys == [3, 4, 5]


def scanned(store: ItemStore, index_id: str) -> list[StoredEmbedding]:
    """Returns all of an index's items, which must all be sound."""
    found = list(store.scan_embeddings(index_id))
    return [item for item in found if isinstance(item, StoredEmbedding)]


def fill(store: ItemStore) -> list[str]:
    """Upserts items of 1 kB, at last one by one, until the map is full; returns the stored ids."""
    stored_ids: list[str] = []
    for count in (64, 8, 1):
        outcome: object = None
        while not isinstance(outcome, StoreFull):
            item_ids = [f"{len(stored_ids) + number:05}" for number in range(count)]
            items = [text_item(item_id, 1, 256) for item_id in item_ids]
            (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
            if isinstance(outcome, Committed):
                stored_ids += item_ids
    return stored_ids
