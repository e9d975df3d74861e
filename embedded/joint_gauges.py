"""Adds up the gauges of several shards in one process, each of which sets them for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from index_svc.metrics import ITEMS, STORE_USED_BYTES
from index_svc.shard import Shard
from index_svc.shard_gauges import SHARD_GAUGES, ShardState
from tandem.contract.content import Modality

_COMBINED: Mapping[str, Callable[[Iterable[float]], float]] = {
    "oldest_reader_age_seconds": max,
    "commit_age_seconds": min,
    "store_limit_bytes": sum,
    "disk_free_bytes": min,
    "snapshot_age_seconds": max,
    "unsaved_change_count": max,
    "queued_write_count": sum,
}
"""How values of shards become one: the worst, or all of them."""


def follow_together(shards: Sequence[Shard]) -> None:
    """Makes a scrape read all of the shards, each of which is loaded."""
    SHARD_GAUGES.follow(lambda: joint_state([shard.state() for shard in shards]))
    for modality in Modality:
        ITEMS.labels(modality.value).set_function(partial(_item_count, shards, modality))
    STORE_USED_BYTES.set_function(lambda: sum(shard.used_bytes() for shard in shards))


def joint_state(states: Sequence[ShardState]) -> ShardState:
    """Returns one state for all; a value that no shard has stays None."""
    joint: dict[str, float] = {}
    for name, combine in _COMBINED.items():
        values = [value for each in states if (value := getattr(each, name)) is not None]
        if values:
            joint[name] = combine(values)
    return ShardState(**joint)


def _item_count(shards: Sequence[Shard], modality: Modality) -> float:
    return sum(index.item_count(modality) for shard in shards for index in shard.indexes().values())
