"""Runs a shard's blocking work in threads of this process."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import IndexSummary
from tandem.contract.search.item_changes import ItemSelection
from tandem.local.shard.description import index_parts, index_summaries
from tandem.local.shard.metrics import STAGE_DURATION
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.short_searches import ShortSearches
from tandem.platform.files.shared_lock import LockBusy
from tandem.stages.changes import ChangePage
from tandem.stages.item_write import Committed, Fence, ShardWrite
from tandem.stages.items import MAX_READ_BYTES, Deleted, FetchedItems, ItemsQuery
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.notes import Note
from tandem.stages.retrieval import ShardDescription, ShardQuery
from tandem.stages.shard import FollowedShard, check_ids_page, check_indexes_page
from tandem.stages.shard_answer import ShardAnswer

_T = TypeVar("_T")

_SEARCH_DURATION = STAGE_DURATION.labels("search")

_DROP_SECONDS = 4.0
_POLL_SECONDS = 0.002
# Time to report, before the deadline, that the sequence was not reached.
_ANSWER_SECONDS = 0.02


class LocalShard(FollowedShard):
    """A shard whose store is here."""

    def __init__(self, shard: StoredShard, threads: Executor) -> None:
        """Takes the shard, and the threads for its work."""
        self._shard = shard
        self._threads = threads
        self._short_searches = ShortSearches()
        # Listings take turns, part by part, in one thread: the others are for searches.
        self._listing = asyncio.Semaphore(1)

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""
        async with deadline.kept("the call of SearchEmbeddings"):
            await self._wait_for(query.minimum_sequence, deadline)
            start_time = time.perf_counter()
            answer = await self._search(query)
        seconds = time.perf_counter() - start_time
        _SEARCH_DURATION.observe(seconds)
        return replace(answer, search_seconds=seconds)

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours among the shard's items."""
        with STAGE_DURATION.labels("neighbours").time():
            async with deadline.kept("the call of FindNeighbours"):
                return await self._in_thread(lambda: self._shard.find_neighbours(query))

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items of the query, as many as the shard reads at once."""
        with STAGE_DURATION.labels("read").time():
            async with deadline.kept("the call of GetItems"):
                items, read_count = await self._in_thread(
                    lambda: self._shard.read_within(
                        query.index_id, query.item_ids, query.max_bytes or MAX_READ_BYTES
                    )
                )
        return FetchedItems(
            {item.item_id: query.fetched(item) for item in items},
            read_count,
            self._shard.fingerprint(query.index_id) if query.encodings_included else "",
        )

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        """Stores or deletes all items or none, or notes something."""
        async with deadline.kept(f"a write of {type(write).__name__}"):
            return await asyncio.wrap_future(self._shard.write(write))

    async def notes(self, prefix: str, deadline: Deadline) -> Sequence[Note]:
        """Returns the notes whose keys begin so."""
        async with deadline.kept("the call of ReadNotes"):
            return await self._in_thread(lambda: self._shard.notes(prefix))

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence."""
        async with deadline.kept("the call of ReadChanges"):
            return await self._in_thread(lambda: self._shard.changes(after_sequence, max_count))

    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins, seals or ends a fence, in the order of commits."""
        async with deadline.kept("the call of FenceWrites"):
            return await asyncio.wrap_future(self._shard.write(fence))

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the index, or as much of it as a few seconds allow."""
        check_index_id(index_id)
        end_time = time.monotonic() + min(_DROP_SECONDS, deadline.left() / 2)
        async with deadline.kept("the call of DeleteIndex"):
            # Not in the searches' threads, because it mostly waits for commits.
            return await asyncio.to_thread(self._shard.drop, index_id, end_time)

    async def list_item_ids(
        self,
        index_id: str,
        after: str,
        max_count: int,
        deadline: Deadline,
        selection: ItemSelection | None = None,
    ) -> Sequence[str]:
        """Returns ids after that one."""
        check_ids_page(index_id, after, max_count)
        chosen, found = selection or ItemSelection(), list[str]()
        next_after: str | None = after
        with STAGE_DURATION.labels("read").time():
            async with deadline.kept("the call of ListItemIds"):
                while next_after is not None and len(found) < max_count:
                    async with self._listing:
                        read = partial(self._shard.item_ids, index_id, max_count - len(found))
                        ids, next_after = await self._in_thread(partial(read, next_after, chosen))
                    found += ids
        return found

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the texts and the images of one index."""
        index = self._shard.index(check_index_id(index_id))
        async with deadline.kept("the call of DescribeShardIndex"):
            parts = await self._in_thread(lambda: index_parts(self._shard, index_id))
        return ShardDescription(
            index.info.fingerprint, index.info.dimension, parts, index.keyword_state
        )

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id."""
        check_indexes_page(max_count, index_ids)
        return index_summaries(self._shard, after, max_count, set(index_ids))

    async def _wait_for(self, sequence: int, deadline: Deadline) -> None:
        """Waits until searches see the sequence or the deadline is near; never without one."""
        while self._shard.applied_sequence < sequence:
            if not _ANSWER_SECONDS <= deadline.left() < math.inf:
                return  # the search raises SequenceNotReached
            await asyncio.sleep(_POLL_SECONDS)

    async def _search(self, query: ShardQuery) -> ShardAnswer:
        """Searches in a thread, or in the event loop if that is short and need not wait."""
        if self._short_searches.expects(query):
            with suppress(LockBusy):
                return self._timed_search(query, at_once=True)
        return await self._in_thread(lambda: self._timed_search(query))

    def _timed_search(self, query: ShardQuery, *, at_once: bool = False) -> ShardAnswer:
        # In a thread, waiting for other threads does not count; in the loop, any wait does.
        clock = time.perf_counter if at_once else time.thread_time
        start_time = clock()
        answer = self._shard.search(query, at_once=at_once)
        self._short_searches.note(query, clock() - start_time)
        return answer

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
