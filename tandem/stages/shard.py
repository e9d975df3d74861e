"""Defines one shard of an index: what is asked of it, here, behind a socket, or in an engine."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.index_description import IndexSummary
from tandem.contract.limits import MAX_PAGE_SIZE, check_batch_size
from tandem.contract.search.item_changes import ItemSelection
from tandem.stages.changes import ChangePage
from tandem.stages.item_write import Committed, Fence, ShardWrite
from tandem.stages.items import Deleted, FetchedItems, ItemsQuery
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.notes import Note
from tandem.stages.retrieval import ShardDescription, ShardQuery
from tandem.stages.shard_answer import ShardAnswer


class Shard(Protocol):
    """Stores a part of each index, and searches it.

    All methods raise DeadlineExceeded, and ServiceUnavailable while the shard cannot answer. Those
    that read an index raise IndexNotFound where no item of it was ever stored.
    """

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings, best first.

        Waits for the query's minimum sequence. Raises SequenceNotReached, ModelMismatch and
        EmbeddingInvalid.
        """

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours among the shard's items; raises as `search` does."""

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items of the query, as many as the shard reads at once.

        Raises ItemCorrupt.
        """

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        """Stores or deletes all items or none, or patches some, durable and searchable; or notes.

        A repeated request id gets the first answer again; an empty one is not remembered. Raises
        ModelMismatch, EmbeddingInvalid, RequestIdReused, StoreFull, IndexNotFound unless
        it stores, WriterRefused where others write the index, and NoteChanged.
        """

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the index, or a part of a large one, as `is_complete` says."""

    async def notes(self, prefix: str, deadline: Deadline) -> Sequence[Note]:
        """Returns the notes whose keys begin so, by key."""

    async def note(self, key: str, deadline: Deadline) -> Note:
        """Returns the note of that key, which is empty if there is none."""
        found = await self.notes(key, deadline)
        return next((note for note in found if note.key == key), Note(key, "", 0))

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence, of all indexes."""

    async def list_item_ids(
        self,
        index_id: str,
        after: str,
        max_count: int,
        deadline: Deadline,
        selection: ItemSelection | None = None,
    ) -> Sequence[str]:
        """Returns ids after that one, in byte order; only of selected items if there is one."""

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the index."""

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id, in byte order; only of `index_ids` if there are."""


class FollowedShard(Shard, Protocol):
    """A shard whose log of changes has no gap, and whose writes can be fenced, for a move."""

    @abstractmethod
    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins, seals or ends a fence; no write is committed after the sequence returned."""


def check_ids_page(index_id: str, after: str, max_count: int) -> None:
    """Raises IndexIdInvalid, BatchSizeOutOfRange and ItemIdInvalid as `list_item_ids` does."""
    check_index_id(index_id)
    check_batch_size("item_ids", max_count, MAX_PAGE_SIZE)
    if after:
        check_item_id(after)


def check_indexes_page(max_count: int, index_ids: Sequence[str]) -> None:
    """Raises BatchSizeOutOfRange as `list_indexes` does."""
    check_batch_size("indexes", max_count, MAX_PAGE_SIZE)
    if index_ids:
        check_batch_size("index_ids", len(index_ids), MAX_PAGE_SIZE)
