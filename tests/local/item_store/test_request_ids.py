"""Tests that a write repeated under its request id gets the same answer and is stored once."""

from dataclasses import replace
from pathlib import Path

import lmdb
import numpy as np
import pytest

from tandem.contract.content import Encoding
from tandem.errors import (
    IndexNotFound,
    RequestIdReused,
)
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.request_log import repeated, write_digest
from tandem.stages.item_write import Committed, Delete, ItemWrite, Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item
from tests.support.item_store.made_stores import MAP_BYTES, scanned


def test_a_repeated_request_is_answered_as_the_first_time(path: Path) -> None:
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
    items = [replace(text_item("a"), attributes={"x": 1}), text_item("b")]
    assert store.apply([Upsert("scenes", FINGERPRINT, items, "r")]) == [Committed(2)]
    others: list[ItemWrite] = [
        Upsert("scenes", FINGERPRINT, items[:1], "r"),
        Upsert("scenes", FINGERPRINT, items[::-1], "r"),
        Upsert("scenes", FINGERPRINT, [replace(items[0], attributes={"x": True}), items[1]], "r"),
        Upsert("scenes", FINGERPRINT, [items[0], text_item("b", 2)], "r"),
        Upsert("scenes-2", FINGERPRINT, items, "r"),
        Delete("scenes", ["a", "b"], "r"),
    ]

    outcomes = store.apply(others)

    assert [type(outcome) for outcome in outcomes] == [RequestIdReused] * len(others)
    assert store.sequence() == 2
    assert store.index_ids() == ["scenes"]


def test_an_answer_that_an_earlier_release_kept_is_given(store: ItemStore) -> None:
    """It was kept under a hash that had the model."""
    write = Upsert("scenes", FINGERPRINT, [text_item("a")], "r")
    digest = "21d1876ac98284536654a01d59684af9"
    assert digest != write_digest(write)
    assert repeated(write, digest, 7, 0) == Committed(7, is_repeat=True)
    with pytest.raises(RequestIdReused):
        repeated(replace(write, items=[text_item("b")]), digest, 7, 0)


def test_a_second_encoding_of_the_same_contents_is_the_same_request(store: ItemStore) -> None:
    """A model may round differently in another batch; the user's content decides."""
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
    (refused,) = store.apply([Delete("scenes", ["a"], "r")])
    assert isinstance(refused, IndexNotFound)
    upsert = Upsert("scenes", FINGERPRINT, [text_item("a")], "r")

    assert store.apply([upsert]) == [Committed(1)]
    assert store.apply([upsert]) == [Committed(1, is_repeat=True)]


def test_only_the_last_request_ids_are_kept(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES, kept_request_count=3)
    writes = [Upsert("scenes", FINGERPRINT, [text_item("a", n)], f"r{n}") for n in range(5)]
    store.apply(writes)

    outcomes = store.apply([writes[2], writes[3], writes[4], writes[0]])

    assert [isinstance(o, Committed) and o.is_repeat for o in outcomes] == [True] * 3 + [False]
    store.close()
    with lmdb.open(str(path), max_dbs=6) as env, env.begin() as txn:
        for name in (b"requests", b"request_order"):
            assert txn.stat(env.open_db(name, txn=txn))["entries"] == 3
