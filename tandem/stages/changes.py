"""Defines the changes of a shard, as those who follow them read them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ItemChange:
    """Describes change number `sequence`: an item stored or deleted, or an index dropped."""

    sequence: int
    index_id: str
    item_id: str
    """Empty where the index was dropped, with all items that it had then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePage:
    """Holds changes of a shard in order, and where its log stands."""

    changes: Sequence[ItemChange] | None
    """None where some of them are no longer kept."""
    sequence: int
    store_id: str
    """A random name of this history of the shard's store."""
    shard_number: int
    shard_count: int
