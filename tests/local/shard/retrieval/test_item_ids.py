"""Tests that ids are found as in a dictionary, whatever is added and removed."""

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandem.local.shard.retrieval import item_ids
from tandem.local.shard.retrieval.item_ids import ItemIds

ids = st.lists(st.sampled_from(["a", "ab", "ä", "日本", "", *map(str, range(30))]), unique=True)


@given(st.lists(st.tuples(ids, ids), max_size=20), st.booleans())
def test_rows_are_found_as_in_a_dictionary(
    rounds: list[tuple[list[str], list[str]]], collide: bool
) -> None:
    """Also where all ids have one hash or take many bytes, and after reading what was written."""
    with (
        patch.object(item_ids, "hash", (lambda _: 7) if collide else hash, create=True),
        patch.object(item_ids, "_MAX_SHORT_START", 20 if collide else 1 << 32),
    ):
        found, expected, appended = ItemIds(), dict[str, int](), list[str]()
        for removed, added in rounds:
            rows = [expected.pop(each) for each in [*removed, *added] if each in expected]
            assert found.remove([*removed, *added]) == rows
            expected |= {each: len(appended) + place for place, each in enumerate(added)}
            appended += added
            found.append(added)

        found_rows = np.array(sorted(expected.values()), np.int64)
        read = ItemIds(found.separated(len(appended)), found_rows)
        for each in (found, read):
            assert len(each) == len(expected)
            assert each.ids_of(np.arange(len(appended))) == appended
            assert {one: each.row_of(one) for one in appended} == {
                one: expected.get(one) for one in appended
            }
            assert each.row_of("never") is None


def test_many_ids_are_found() -> None:
    """The table grew many times, and half of the ids were replaced."""
    count = 40_000
    names = [f"picture-{number}.jpg" for number in range(count)]
    found = ItemIds()
    for start in range(0, count, 1_000):
        found.append(names[start : start + 1_000])
    assert found.remove(names[::2] + names[:1]) == list(range(0, count, 2))
    found.append(names[::2])

    assert [found.row_of(each) for each in names[1::2]] == list(range(1, count, 2))
    assert found.row_of(names[2]) == count + 1
    assert found.separated(2) == b"picture-0.jpg\0picture-1.jpg\0"
