"""The gauges of several shards in one process, against sums made by hand."""

from __future__ import annotations

from embedded.joint_gauges import joint_state
from index_svc.shard_gauges import ShardState

FIRST = ShardState(
    oldest_reader_age_seconds=1.0,
    commit_age_seconds=7.0,
    store_limit_bytes=100.0,
    disk_free_bytes=50.0,
    snapshot_age_seconds=9.0,
    unsaved_change_count=3.0,
    queued_write_count=2.0,
)
SECOND = ShardState(
    oldest_reader_age_seconds=4.0,
    commit_age_seconds=5.0,
    store_limit_bytes=200.0,
    disk_free_bytes=60.0,
    queued_write_count=1.0,
)


def test_each_value_is_the_worst_of_the_shards_or_their_sum() -> None:
    """Ages and changes are the worst, sizes and writes are added up; an unknown one is left out."""
    assert joint_state([FIRST, SECOND]) == ShardState(
        oldest_reader_age_seconds=4.0,
        commit_age_seconds=5.0,
        store_limit_bytes=300.0,
        disk_free_bytes=50.0,
        snapshot_age_seconds=9.0,
        unsaved_change_count=3.0,
        queued_write_count=3.0,
    )


def test_one_shard_is_itself_and_none_has_no_values() -> None:
    """Every gauge has its rule."""
    assert joint_state([FIRST]) == FIRST
    assert joint_state([]) == ShardState()
