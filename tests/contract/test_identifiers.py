"""tandem.contract.identifiers: which ids are taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.contract.identifiers import check_index_id, check_item_id, check_request_id
from tandem.errors import IndexIdInvalid, ItemIdInvalid, RequestIdInvalid


def test_valid_index_ids_are_returned_unchanged() -> None:
    ids = ["0", "flickr30k-image_v2", "a" * 63]

    assert list(map(check_index_id, ids)) == ids


def test_bad_index_ids_are_refused() -> None:
    """No id can be a path, end in a newline, or use digits of another script."""
    for index_id in ["", "a" * 64, "-a", "Scenes", "a/b", "a\n", "٣"]:
        with pytest.raises(IndexIdInvalid):
            check_index_id(index_id)


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=64))
def test_any_short_text_is_an_item_id(item_id: str) -> None:
    """64 characters of at most 4 bytes fit in 256."""
    assert check_item_id(item_id) == item_id


@pytest.mark.parametrize(
    ("item_id", "why"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("ä" * 129, "258 bytes"),
        ("\ud800", "not UTF-8"),
    ],
)
def test_bad_item_ids_are_refused_with_the_cause(item_id: str, why: str) -> None:
    with pytest.raises(ItemIdInvalid, match=why):
        check_item_id(item_id)


def test_the_longest_ids_are_taken() -> None:
    """Bytes count, not characters."""
    assert check_item_id("ä" * 128) == "ä" * 128
    assert check_request_id("ä" * 32) == "ä" * 32
    with pytest.raises(RequestIdInvalid, match=r"65 bytes"):
        check_request_id("x" * 65)
