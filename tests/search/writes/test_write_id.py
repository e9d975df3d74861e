"""Request ids of shards' parts: the same in each attempt, different where the writes are."""

from hypothesis import given
from hypothesis import strategies as st

from tandem.search.shard_map import ShardMap
from tandem.search.writes.write_id import shard_request_id

MAPS = [ShardMap(2), ShardMap(3), ShardMap(2, version=2)]


@given(st.text(min_size=1, max_size=16))
def test_a_shards_id_is_the_same_in_each_attempt_and_fits(request_id: str) -> None:
    """Whatever the caller chose; shards accept 64 bytes."""
    made = shard_request_id(request_id, 1, ShardMap(2))

    assert made == shard_request_id(request_id, 1, ShardMap(2))
    assert len(made) == 32


def test_parts_of_one_write_have_different_ids() -> None:
    ids = {
        shard_request_id(request_id, shard, shard_map)
        for request_id in ("a", "b", "0/a")
        for shard_map in MAPS
        for shard in range(2)
    }

    assert len(ids) == 3 * 3 * 2


def test_a_missing_id_stays_missing() -> None:
    """An empty id is not remembered, so it must not become one."""
    assert shard_request_id("", 0, ShardMap(1)) == ""
