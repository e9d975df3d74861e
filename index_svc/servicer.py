"""Serves IndexService: runs the shard's blocking work in threads."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TypeVar

import grpc

from tandem.chassis.calls.channels import deadline_seconds
from tandem.chassis.process.side_thread import converted
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import part_to_proto, summary_to_proto
from tandem.errors import ShardMapMismatch
from tandem.shard.description import index_parts, index_summaries
from tandem.shard.metrics import STAGE_DURATION
from tandem.shard.shard import MAX_READ_BYTES, Shard
from tandem.shard.short_searches import ShortSearches
from tandem.shared_lock import LockBusy
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import ShardAnswer
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceServicer as _Base
from tandem.wire.items import (
    check_page,
    delete_from_proto,
    encoded_items_to_proto,
    get_from_proto,
    items_to_proto,
    list_from_proto,
    upsert_from_proto,
)
from tandem.wire.neighbours import neighbour_query_from_proto, neighbours_to_proto
from tandem.wire.retrieval import answer_to_proto, query_from_proto

_T = TypeVar("_T")

_SEARCH_DURATION = STAGE_DURATION.labels("search")

_DROP_SECONDS = 4.0
_POLL_SECONDS = 0.002
# Time to report, before the deadline, that the sequence was not reached.
_ANSWER_SECONDS = 0.02


class IndexServicer(_Base):
    """Serves a shard over gRPC; the chassis maps its errors to statuses."""

    def __init__(self, shard: Shard, threads: Executor, *, shard_map_version: int = 1) -> None:
        """Takes the shard, the threads for its work, and the only shard map version to accept."""
        self._shard = shard
        self._threads = threads
        self._shard_map_version = shard_map_version
        self._short_searches = ShortSearches()

    async def SearchEmbeddings(
        self, request: pb.SearchEmbeddingsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchEmbeddingsResponse:
        """Finds this shard's nearest items for each query."""
        self._check_shard_map(request.shard_map_version)
        query = await converted(partial(query_from_proto, request))
        answer, seconds = await self.search(query, context)
        return answer_to_proto(answer, seconds)

    async def search(
        self, query: ShardQuery, context: grpc.aio.ServicerContext, shard_map_version: int = 0
    ) -> tuple[ShardAnswer, float]:
        """Returns what the shard finds, and the seconds; callers here need no message."""
        self._check_shard_map(shard_map_version)
        await self._wait_for(query.minimum_sequence, context)
        start_time = time.perf_counter()
        answer = await self._search(query)
        seconds = time.perf_counter() - start_time
        _SEARCH_DURATION.observe(seconds)
        return answer, seconds

    async def UpsertItems(
        self, request: pb.UpsertItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.UpsertItemsResponse:
        """Stores all items or none; answers once they are durable and searchable."""
        self._check_shard_map(request.shard_map_version)
        upsert = await self._in_thread(lambda: upsert_from_proto(request))
        committed = await asyncio.wrap_future(self._shard.write(upsert))
        return pb.UpsertItemsResponse(sequence=committed.sequence)

    async def DeleteItems(
        self, request: pb.DeleteItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteItemsResponse:
        """Deletes all of the items by id, or none."""
        self._check_shard_map(request.shard_map_version)
        committed = await asyncio.wrap_future(self._shard.write(delete_from_proto(request)))
        return pb.DeleteItemsResponse(
            deleted_count=committed.deleted_count, sequence=committed.sequence
        )

    async def DeleteIndex(
        self, request: pb.DeleteIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteIndexResponse:
        """Deletes an index, or as much of it as a few seconds allow."""
        self._check_shard_map(request.shard_map_version)
        index_id = check_index_id(request.index_id)
        deadline_time = time.monotonic() + min(
            _DROP_SECONDS, deadline_seconds(context, _DROP_SECONDS) / 2
        )
        # Not in the searches' threads, because it mostly waits for commits.
        dropped = await asyncio.to_thread(self._shard.drop, index_id, deadline_time)
        return pb.DeleteIndexResponse(
            deleted_count=dropped.count,
            sequence=dropped.sequence,
            is_complete=dropped.is_complete,
        )

    async def GetItems(
        self, request: pb.GetItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetItemsResponse:
        """Reads items' contents by id, as many as fit into the response."""
        index_id, item_ids, max_bytes = get_from_proto(request)
        with STAGE_DURATION.labels("read").time():
            items, read_count = await self._in_thread(
                lambda: self._shard.read_within(index_id, item_ids, max_bytes or MAX_READ_BYTES)
            )
        if not request.encodings_included:
            return pb.GetItemsResponse(
                items=items_to_proto(items, content_included=not request.content_excluded),
                read_count=read_count,
            )
        return pb.GetItemsResponse(
            encoded_items=encoded_items_to_proto(items),
            model_fingerprint=self._shard.fingerprint(index_id),
            read_count=read_count,
        )

    async def ListItemIds(
        self, request: pb.ListItemIdsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListItemIdsResponse:
        """Returns a page of the shard's ids."""
        index_id, after, count = list_from_proto(request)
        with STAGE_DURATION.labels("read").time():
            item_ids = await self._in_thread(lambda: self._shard.item_ids(index_id, count, after))
        return pb.ListItemIdsResponse(item_ids=item_ids)

    async def FindNeighbours(
        self, request: pb.FindNeighboursRequest, context: grpc.aio.ServicerContext
    ) -> pb.FindNeighboursResponse:
        """Finds the neighbours of a query and of its candidates."""
        self._check_shard_map(request.shard_map_version)
        with STAGE_DURATION.labels("neighbours").time():
            return await self._in_thread(
                lambda: neighbours_to_proto(
                    self._shard.find_neighbours(neighbour_query_from_proto(request))
                )
            )

    async def DescribeShardIndex(
        self, request: pb.DescribeShardIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeShardIndexResponse:
        """Describes the texts and the images of one index."""
        self._check_shard_map(request.shard_map_version)
        index_id = check_index_id(request.index_id)
        index = self._shard.index(index_id)
        parts = await self._in_thread(lambda: index_parts(self._shard, index_id))
        return pb.DescribeShardIndexResponse(
            model_fingerprint=index.info.fingerprint,
            embedding_dimension=index.info.dimension,
            parts=map(part_to_proto, parts),
            keyword_state=index.keyword_state.value,
        )

    async def ListShardIndexes(
        self, request: pb.ListShardIndexesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListShardIndexesResponse:
        """Returns a page of the shard's indexes."""
        check_page(request.max_count, request.index_ids)
        found = index_summaries(
            self._shard, request.after, request.max_count, set(request.index_ids)
        )
        return pb.ListShardIndexesResponse(indexes=map(summary_to_proto, found))

    def _check_shard_map(self, version: int) -> None:
        # Another map may put an item on another shard: written here, it would not be found.
        if version not in (0, self._shard_map_version):
            raise ShardMapMismatch(request_version=version, shard_version=self._shard_map_version)

    async def _wait_for(self, sequence: int, context: grpc.aio.ServicerContext) -> None:
        """Waits until searches see the sequence, or the deadline is near."""
        while self._shard.applied_sequence < sequence:
            left_seconds = context.time_remaining()
            if left_seconds is None or left_seconds < _ANSWER_SECONDS:
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
