"""Owners of items: the same everywhere and always, even, and moved as little as can be."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.search.shard_map import ShardMap

IDS = [f"item-{number}" for number in range(4_000)]
shard_counts = st.integers(1, 12)
names = st.text(min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("index_id", "item_id", "owners"),
    [
        ("scenes", "scenes-test-000000-0", [0, 2, 2]),
        ("scenes", "Käse/犬", [0, 0, 7]),
    ],
)
def test_owners_never_change(index_id: str, item_id: str, owners: list[int]) -> None:
    """Of 2, 3 and 8 shards: a change here would lose every stored item."""
    assert [ShardMap(count).owner(index_id, item_id) for count in (2, 3, 8)] == owners


@pytest.mark.parametrize("shard_count", [2, 3, 8])
def test_items_spread_evenly(shard_count: int) -> None:
    """Within five standard deviations of an equal share; ids that count up are no trouble."""
    shard_map = ShardMap(shard_count)

    counts = Counter(shard_map.owner("scenes", item_id) for item_id in IDS)

    share = 1 / shard_count
    spread = 5 * (len(IDS) * share * (1 - share)) ** 0.5
    assert all(abs(counts[n] - len(IDS) * share) < spread for n in range(shard_count))


@pytest.mark.parametrize("shard_count", [1, 2, 7])
def test_another_shard_gets_its_share_and_moves_nothing_else(shard_count: int) -> None:
    """An item stays where it is or goes to the new shard; about one in n + 1 goes."""
    before, after = ShardMap(shard_count), ShardMap(shard_count + 1)

    moved = 0
    for item_id in IDS:
        old, new = before.owner("scenes", item_id), after.owner("scenes", item_id)
        assert new in (old, shard_count)
        moved += new != old

    share = 1 / (shard_count + 1)
    assert abs(moved / len(IDS) - share) < 5 * (share * (1 - share) / len(IDS)) ** 0.5


def test_an_items_shard_differs_between_indexes() -> None:
    """Two indexes of the same ids do not load the same shards alike by construction."""
    shard_map = ShardMap(2)
    same = sum(shard_map.owner("a", each) == shard_map.owner("b", each) for each in IDS)

    assert 0.4 < same / len(IDS) < 0.6


def test_an_id_cannot_run_into_the_index_before_it() -> None:
    """("a", "b-c") and ("a-b", "c") are different keys: of many such, some have other owners."""
    shard_map = ShardMap(8)

    pairs = [(("a", f"b-{n}"), ("a-b", str(n))) for n in range(100)]

    assert any(shard_map.owner(*one) != shard_map.owner(*other) for one, other in pairs)


@given(shard_counts, st.lists(names, max_size=30, unique=True))
def test_groups_are_by_owner_in_the_order_given(shard_count: int, item_ids: list[str]) -> None:
    shard_map = ShardMap(shard_count)

    groups = shard_map.group("scenes", iter(item_ids))

    for shard, owned in groups.items():
        assert owned == [each for each in item_ids if shard_map.owner("scenes", each) == shard]
        assert owned
    assert sum(map(len, groups.values())) == len(item_ids)
