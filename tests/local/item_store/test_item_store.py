"""Tests that the item store keeps what it was given, or refuses it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.contract.content import ImageContent, ImageTokens, Modality, TextContent, TextTokens
from tandem.contract.filtering.attributes import AttributeValue
from tandem.contract.regions import RegionContent
from tandem.errors import (
    EmbeddingInvalid,
    IndexNotFound,
    ItemCorrupt,
    ModelMismatch,
)
from tandem.local.item_store.item_record import RecordView, item_key, pack_item
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Committed, Delete, Upsert
from tests.support.item_store.made_items import (
    DIMENSION,
    FINGERPRINT,
    image_item,
    text_item,
    unit_vector,
    upserts_of,
)
from tests.support.item_store.made_stores import MAP_BYTES, scanned
from tests.support.item_store.stored_values import overwrite

ATTRIBUTE_VALUES: st.SearchStrategy[AttributeValue] = st.one_of(
    st.text(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.lists(st.text()).map(tuple),
)
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


def test_regions_are_read_back_unchanged(store: ItemStore) -> None:
    content = RegionContent.of([[1, 2]], [[0, 0, 5, 5]], image_width=10, image_height=5)
    regions = replace(image_item("r", 8), content=content)
    picture = replace(image_item("i", 8), content=ImageContent(content.packed()))

    assert store.apply([Upsert("scenes", FINGERPRINT, [regions, picture])]) == [Committed(2)]

    got_regions, got_picture = store.read_items("scenes", ["r", "i"])
    assert got_regions is not None
    assert got_picture is not None
    assert got_regions.content == content
    assert got_regions.content.modality is Modality.IMAGE
    assert got_picture.content == picture.content


def test_items_are_read_back_unchanged(store: ItemStore) -> None:
    text, image = text_item("t/ünï ☃", 7), image_item("i", 8)

    assert store.apply([Upsert("scenes", FINGERPRINT, [text, image])]) == [Committed(2)]

    got_image, missing, got_text = store.read_items("scenes", ["i", "nobody", "t/ünï ☃"])
    assert missing is None
    assert got_text is not None
    assert got_image is not None
    assert (got_text.item_id, got_text.content) == (text.item_id, text.content)
    assert (got_image.item_id, got_image.content) == (image.item_id, image.content)
    np.testing.assert_array_equal(got_image.encoding.embedding, image.encoding.embedding)
    image_tokens, text_tokens = got_image.encoding.tokens, got_text.encoding.tokens
    assert isinstance(image_tokens, ImageTokens)
    assert isinstance(text_tokens, TextTokens)
    assert isinstance(image.encoding.tokens, ImageTokens)
    np.testing.assert_array_equal(image_tokens.values, image.encoding.tokens.values)
    np.testing.assert_array_equal(text_tokens.ids, [101, 7, 102])
    assert (image_tokens.values.dtype, text_tokens.ids.dtype) == (np.float16, np.int32)


def test_attributes_keep_their_types(store: ItemStore) -> None:
    """An integer, an equal float and a boolean stay distinct, and texts stay a tuple."""
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
def test_any_attributes_are_read_back(attributes: dict[str, AttributeValue]) -> None:
    item = replace(image_item("a", 3), attributes=attributes)
    key = item_key("scenes", "a")

    found = RecordView("a", key, pack_item(key, item, 7))

    assert repr(sorted(found.attributes().items())) == repr(sorted(attributes.items()))
    assert (found.sequence, found.modality) == (7, Modality.IMAGE)


def test_embeddings_are_read_by_id(path: Path) -> None:
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


def test_an_upsert_replaces_and_a_delete_removes(store: ItemStore) -> None:
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 1), text_item("b", 1)])])
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 2)])])

    outcome = store.apply([Delete("scenes", ["b", "nobody", "b"])])

    assert outcome == [Committed(4, deleted_count=1)]
    a, b = store.read_items("scenes", ["a", "b"])
    assert a is not None
    assert a.content == TextContent("a of seed 2")
    assert b is None
    assert store.sequence() == 4


def test_the_first_upsert_creates_an_index(store: ItemStore) -> None:
    """It keeps that fingerprint and dimension, even when emptied."""
    with pytest.raises(IndexNotFound):
        store.index_info("scenes")
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a")])])
    store.apply([Delete("scenes", ["a"])])

    assert store.index_ids() == ["scenes"]
    assert store.index_info("scenes") == IndexInfo(FINGERPRINT, DIMENSION)
    assert store.read_stored_tokens("scenes", ["a"]) == [None]


def test_only_the_write_of_another_model_is_left_out(store: ItemStore) -> None:
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
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("a", 1)])])
    store.apply([Upsert("scenes-2", "model-b", [text_item("a", 2, 4), text_item("b", 3, 4)])])

    assert [item.item_id for item in scanned(store, "scenes")] == ["a"]
    assert [item.item_id for item in scanned(store, "scenes-2")] == ["a", "b"]
    assert store.index_ids() == ["scenes", "scenes-2"]


def test_a_scan_gives_every_item_once_across_its_transactions(store: ItemStore) -> None:
    item_ids = [f"{number:05}" for number in range(1300)]
    items = [text_item(item_id, int(item_id)) for item_id in item_ids]
    store.apply([*upserts_of(items), Upsert("z", FINGERPRINT, items[:1])])

    found = scanned(store, "scenes")

    assert [item.item_id for item in found] == item_ids
    assert {item.modality for item in found} == {Modality.TEXT}
    np.testing.assert_array_equal(found[-1].embedding, unit_vector(1299))
