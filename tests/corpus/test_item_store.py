"""The item store keeps what it was given, or says that it did not."""

import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.attributes import AttributeValue
from tandem.content import Encoding, ImageTokens, Modality, TextContent, TextTokens
from tandem.corpus.change_log import Change
from tandem.corpus.checksum import seal
from tandem.corpus.item_record import RecordView, StoredItem, item_key, pack_item
from tandem.corpus.item_store import IndexInfo, ItemStore, StoredEmbedding
from tandem.corpus.item_write import Committed, Delete, ItemWrite, Upsert
from tandem.corpus.store_environment import raise_limit
from tandem.corpus.store_files import SCHEMA_VERSION
from tandem.corpus.store_refused import StoreRefused
from tandem.corpus.verdict import verify_in_child
from tandem.errors import (
    EmbeddingInvalid,
    IndexNotFound,
    ItemCorrupt,
    ModelMismatch,
    RequestIdReused,
    ServiceUnavailable,
    StoreFull,
)
from tests.corpus.made_items import DIMENSION, FINGERPRINT, image_item, text_item, unit_vector
from tests.corpus.stored_values import overwrite, stored_value

MAP_BYTES = 16 << 20
ROOT = Path(__file__).parents[2]
ATTRIBUTE_VALUES: st.SearchStrategy[AttributeValue] = st.one_of(
    st.text(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.lists(st.text()).map(tuple),
)


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


ATTRIBUTES: Mapping[str, AttributeValue] = {
    "word": "ünï ☃",
    "empty": "",
    "whole": 1,
    "large": 2**63 - 1,
    "small": -(2**63),
    "fraction": 1.0,
    "tiny": 5e-324,
    "huge": 1e300,
    "minus": -0.0,
    "yes": True,
    "no": False,
    "tags": ("a", "b"),
    "none": (),
}


def test_attributes_come_back_of_the_same_types(store: ItemStore) -> None:
    """An integer stays one beside a float of the same value and a boolean, and words a tuple."""
    items = [replace(text_item("a"), attributes=ATTRIBUTES), image_item("b")]
    store.apply([Upsert("scenes", FINGERPRINT, items)])

    a, b = store.read_items("scenes", ["a", "b"])
    scanned_a, scanned_b = scanned(store, "scenes")
    (read_a,) = store.read_embeddings("scenes", ["a"])

    assert a is not None
    assert b is not None
    assert isinstance(read_a, StoredEmbedding)
    for found in (a, scanned_a, read_a):
        assert list(map(repr, sorted(found.attributes.items()))) == list(
            map(repr, sorted(ATTRIBUTES.items()))
        )
    assert b.attributes == scanned_b.attributes == {}


@given(attributes=st.dictionaries(st.text(), ATTRIBUTE_VALUES))
def test_any_attributes_come_back(attributes: dict[str, AttributeValue]) -> None:
    """Values of every type, alone and beside one another, are read back as they were packed."""
    item = replace(image_item("a", 3), attributes=attributes)
    key = item_key("scenes", "a")

    found = RecordView("a", key, pack_item(key, item, 7))

    assert repr(sorted(found.attributes().items())) == repr(sorted(attributes.items()))
    assert (found.sequence, found.modality) == (7, Modality.IMAGE)


def test_embeddings_are_read_by_id(path: Path) -> None:
    """They come in the order asked for, with None and ItemCorrupt in the places of what is not."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item(i, n) for n, i in enumerate("abc")])])
    store.close()
    overwrite(path, "items", item_key("scenes", "b"), b"not a record")
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    c, b, nobody, a = store.read_embeddings("scenes", ["c", "b", "nobody", "a"])

    assert isinstance(a, StoredEmbedding)
    assert isinstance(c, StoredEmbedding)
    assert (a.item_id, c.item_id, nobody) == ("a", "c", None)
    assert isinstance(b, ItemCorrupt)
    np.testing.assert_array_equal(c.embedding, unit_vector(2))
    with pytest.raises(IndexNotFound):
        store.read_embeddings("nowhere", ["a"])
    store.close()


def test_changes_since_a_sequence_are_told_in_order(store: ItemStore) -> None:
    """Every change after the sequence is told once; at the newest there is none."""
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a"), text_item("b")])])
    store.apply([Delete("scenes", ["a", "nobody"]), Upsert("z", FINGERPRINT, [text_item("a")])])

    assert changes(store, 0) == [
        Change(1, "upsert", "scenes", "a"),
        Change(2, "upsert", "scenes", "b"),
        Change(3, "delete", "scenes", "a"),
        Change(4, "upsert", "z", "a"),
    ]
    assert changes(store, 3) == [Change(4, "upsert", "z", "a")]
    assert changes(store, 4) == []
    # A sequence of another history of this shard, before it was restored for example.
    assert changes(store, 5) is None


def test_changes_beyond_one_transaction_are_told(store: ItemStore) -> None:
    """More changes than one transaction reads come whole."""
    items = [text_item(f"{number:04}") for number in range(1300)]
    store.apply([Upsert("scenes", FINGERPRINT, items)])

    found = changes(store, 7)

    assert found is not None
    assert [change.sequence for change in found] == list(range(8, 1301))


def test_changes_that_were_trimmed_are_not_told_in_part(path: Path) -> None:
    """Where the kept log begins later than asked for there is no answer, rather than half of it."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES, kept_log_count=3)
    assert changes(store, 0) == []
    for seed in range(5):
        store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", seed)])])

    assert changes(store, 1) is None
    assert changes(store, 2) == [Change(n, "upsert", "scenes", "a") for n in (3, 4, 5)]
    assert changes(store, 5) == []
    store.close()


def test_a_hole_in_the_change_log_is_told(path: Path) -> None:
    """A change that is not there though a later one is raises, and is not passed over."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item(i) for i in "abc"])])
    store.close()
    with lmdb.open(str(path), max_dbs=5) as env, env.begin(write=True) as txn:
        txn.delete((2).to_bytes(8, "big"), db=env.open_db(b"log", txn=txn))

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    with pytest.raises(ItemCorrupt, match="change 2"):
        changes(store, 0)
    store.close()


def test_a_repeated_request_is_answered_as_the_first_time(path: Path) -> None:
    """A write whose id was stored changes nothing, also after a restart and in one transaction."""
    upsert = Upsert("scenes", FINGERPRINT, [text_item("a"), text_item("b")], "request-1")
    delete = Delete("scenes", ["a", "nobody"], "request-2")
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    assert store.apply([upsert, upsert, delete]) == [
        Committed(2),
        Committed(2, is_repeat=True),
        Committed(3, deleted_count=1),
    ]
    store.close()
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("c")])])

    assert store.apply([upsert, delete]) == [
        Committed(2, is_repeat=True),
        Committed(3, deleted_count=1, is_repeat=True),
    ]
    assert store.sequence() == 4
    assert [item.item_id for item in scanned(store, "scenes")] == ["b", "c"]
    store.close()


def test_a_request_id_is_for_one_write(store: ItemStore) -> None:
    """The id of a stored write refuses any other: items, order, contents, attributes, operation."""
    items = [replace(text_item("a"), attributes={"x": 1}), text_item("b")]
    assert store.apply([Upsert("scenes", FINGERPRINT, items, "r")]) == [Committed(2)]
    others: list[ItemWrite] = [
        Upsert("scenes", FINGERPRINT, items[:1], "r"),
        Upsert("scenes", FINGERPRINT, items[::-1], "r"),
        Upsert("scenes", FINGERPRINT, [replace(items[0], attributes={"x": True}), items[1]], "r"),
        Upsert("scenes", FINGERPRINT, [items[0], text_item("b", 2)], "r"),
        Upsert("scenes-2", FINGERPRINT, items, "r"),
        Upsert("scenes", "model-b", items, "r"),
        Delete("scenes", ["a", "b"], "r"),
    ]

    outcomes = store.apply(others)

    assert [type(outcome) for outcome in outcomes] == [RequestIdReused] * len(others)
    assert store.sequence() == 2
    assert store.index_ids() == ["scenes"]


def test_a_second_encoding_of_the_same_contents_is_the_same_request(store: ItemStore) -> None:
    """A model may round otherwise in another batch; what the user sent decides."""
    first = replace(text_item("a"), attributes={"x": 1, "y": 2})
    second = replace(
        first,
        encoding=Encoding(first.encoding.embedding * np.float32(1 + 1e-7), first.encoding.tokens),
        attributes={"y": 2, "x": 1},
    )

    assert store.apply([Upsert("scenes", FINGERPRINT, [first], "r")]) == [Committed(1)]
    assert store.apply([Upsert("scenes", FINGERPRINT, [second], "r")]) == [
        Committed(1, is_repeat=True)
    ]


def test_a_refused_write_keeps_its_request_id_free(store: ItemStore) -> None:
    """Only what was stored is remembered: a refusal can be mended and tried again."""
    (refused,) = store.apply([Delete("scenes", ["a"], "r")])
    assert isinstance(refused, IndexNotFound)
    upsert = Upsert("scenes", FINGERPRINT, [text_item("a")], "r")

    assert store.apply([upsert]) == [Committed(1)]
    assert store.apply([upsert]) == [Committed(1, is_repeat=True)]


def test_only_the_last_request_ids_are_kept(path: Path) -> None:
    """The oldest answers are forgotten, so that writing for ever fills no disk."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES, kept_request_count=3)
    writes = [Upsert("scenes", FINGERPRINT, [text_item("a", n)], f"r{n}") for n in range(5)]
    store.apply(writes)

    outcomes = store.apply([writes[2], writes[3], writes[4], writes[0]])

    assert [isinstance(o, Committed) and o.is_repeat for o in outcomes] == [True] * 3 + [False]
    store.close()
    with lmdb.open(str(path), max_dbs=5) as env, env.begin() as txn:
        for name in (b"requests", b"request_order"):
            assert txn.stat(env.open_db(name, txn=txn))["entries"] == 3


def test_a_store_of_version_1_is_read_and_brought_to_ours(path: Path) -> None:
    """Its items and its log are there, to a reader as it is and to a writer that upgrades it."""
    make_version_1(path, [text_item("a", 5), image_item("b", 6)])
    reader = ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES)
    assert reader.store_id == ""
    assert [item.item_id for item in scanned(reader, "scenes")] == ["a", "b"]
    versions = reader.read_versions("scenes", ["a", "b"])
    reader.close()
    assert verify_in_child(path).is_sound

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    assert store.read_versions("scenes", ["a", "b"]) == versions
    assert None not in versions
    a, b = store.read_items("scenes", ["a", "b"])
    assert a is not None
    assert b is not None
    assert (a.content, a.attributes) == (TextContent("a of seed 5"), {})
    expected = image_item("b", 6).encoding
    np.testing.assert_array_equal(b.encoding.embedding, expected.embedding)
    assert isinstance(b.encoding.tokens, ImageTokens)
    assert isinstance(expected.tokens, ImageTokens)
    np.testing.assert_array_equal(b.encoding.tokens.values, expected.tokens.values)
    assert changes(store, 0) == [Change(n, "upsert", "scenes", i) for n, i in ((1, "a"), (2, "b"))]
    store_id = store.store_id
    assert len(store_id) == 32
    upsert = Upsert("scenes", FINGERPRINT, [replace(text_item("a"), attributes={"x": 1})], "r")
    assert store.apply([upsert, upsert]) == [Committed(3), Committed(3, is_repeat=True)]
    store.close()
    assert verify_in_child(path).is_sound
    assert b'"schema_version":2' in stored_value(path, "meta", b"schema")
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    assert store.store_id == store_id
    store.close()


def test_another_shards_store_of_version_1_is_left_as_it_was(path: Path) -> None:
    """A store that is refused is not upgraded first."""
    make_version_1(path, [text_item("a")])

    with pytest.raises(StoreRefused, match="is shard 0 of 1"):
        ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)

    assert b'"schema_version":1' in stored_value(path, "meta", b"schema")


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


def test_a_store_that_was_being_made_is_made_anew(path: Path) -> None:
    """Whatever a process left that was ended while it made a store, the next makes it whole."""
    (path / "making").mkdir(parents=True)
    (path / "making" / "data.mdb").write_bytes(b"half of it")

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)

    assert store.apply([Upsert("scenes", FINGERPRINT, [text_item("a")])]) == [Committed(1)]
    store.close()
    assert sorted(file.name for file in path.iterdir()) == ["data.mdb", "lock.mdb", "writer.lock"]


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


def test_a_raised_limit_is_taken_up_while_writing(path: Path) -> None:
    """A full store takes writes again once its limit is raised, with no new start."""
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    stored_ids = fill(store)
    items = [text_item(f"new {n}", n, 256) for n in range(600)]
    (refused,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
    assert isinstance(refused, StoreFull)

    raise_limit(path, 8 << 20)

    (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
    assert isinstance(outcome, Committed)
    assert store.map_bytes() == 8 << 20
    assert len(scanned(store, "scenes")) == len(stored_ids) + 600
    store.close()
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    assert store.map_bytes() == 8 << 20
    store.close()


def test_a_limit_can_be_raised_while_others_read(path: Path) -> None:
    """The map is exchanged between read transactions, never under one."""
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    stored_ids = fill(store)
    stop, faults, reads = threading.Event(), [], [0]

    def read() -> None:
        while not stop.is_set():
            try:
                assert None not in store.read_items("scenes", stored_ids[:50])
                assert len(scanned(store, "scenes")) >= len(stored_ids)
                reads[0] += 1
            except BaseException as error:
                faults.append(error)
                raise

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(10):
        raise_limit(path, (2 + number) << 20)
        item_ids = [f"{number}-{n}" for n in range(400)]
        outcome: object = None
        while not isinstance(outcome, StoreFull):
            (outcome,) = store.apply(
                [Upsert("scenes", FINGERPRINT, [text_item(i, 1, 256) for i in item_ids[:100]])]
            )
            item_ids = [f"{i}+" for i in item_ids]
    stop.set()
    for reader in readers:
        reader.join(30)

    assert faults == []
    assert reads[0] > 0
    assert store.map_bytes() == 11 << 20
    store.close()


def test_a_reader_with_a_smaller_map_follows_the_writer(path: Path) -> None:
    """What another process writes past the end of a reader's map is read without a new start."""
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()
    reader = ItemStore.open(path, 0, 1, readonly=True, map_bytes=1 << 16)
    assert reader.index_ids() == []
    before = reader.map_bytes()
    script = (
        "import sys; from pathlib import Path\n"
        "from tandem.corpus.item_store import ItemStore\n"
        "from tandem.corpus.item_write import Upsert\n"
        "from tests.corpus.made_items import FINGERPRINT, text_item\n"
        "store = ItemStore.open(Path(sys.argv[1]), 0, 1, map_bytes=64 << 20)\n"
        "items = [text_item(f'{n}', n, 256) for n in range(2000)]\n"
        "store.apply([Upsert('scenes', FINGERPRINT, items)])\n"
        "store.close()\n"
    )

    run_python(script, path)

    assert len(scanned(reader, "scenes")) == 2000
    assert reader.map_bytes() > before
    reader.close()


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


def changes(store: ItemStore, sequence: int) -> list[Change] | None:
    """Returns the changes since a sequence, None where the store does not tell."""
    found = store.changes_since(sequence)
    return None if found is None else list(found)


def make_version_1(path: Path, items: Sequence[StoredItem]) -> None:
    """Makes the files that the first release wrote: schema 1, records 1, three databases."""
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


def record_1(item: StoredItem, sequence: int) -> bytes:
    """Returns an item's record as version 1 had it."""
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


def run_python(script: str, *arguments: Path) -> str:
    """Runs Python code in a process of its own; returns what it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
