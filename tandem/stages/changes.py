"""Defines how the changes of a shard are followed, and its writes fenced, as a move needs it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tandem.contract.deadline import Deadline
from tandem.stages.item_write import Committed, Fence


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


class FollowedShard(Protocol):
    """Keeps a log of its changes, without a gap and in the order of commits."""

    @abstractmethod
    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence."""
        ...

    @abstractmethod
    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins, seals or ends a fence; no write is committed after the sequence returned."""
        ...
