"""SearchService: converts messages, and calls the searchers, the ingest stream and the remover."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from functools import partial

import grpc

from orchestrator_svc.wire.cursor_wire import page_from_proto
from orchestrator_svc.wire.index_wire import listed_to_proto, surveyed_to_proto
from orchestrator_svc.wire.ingest_wire import batch_from_proto, ingested_to_proto
from orchestrator_svc.wire.search_wire import answer_to_proto, page_to_proto, query_from_proto
from tandem.chassis.process.side_thread import converted
from tandem.contract.deadline import Deadline
from tandem.contract.limits import DEFAULT_PAGE_SIZE, MAX_SEARCH_COUNT, check_batch_size
from tandem.errors import CursorInvalid, TandemError
from tandem.search.batch_search import BatchSearcher
from tandem.search.calls.item_reader import FetchedItem
from tandem.search.contents.content_room import ContentBudget
from tandem.search.indexes.index_list import IndexList
from tandem.search.indexes.index_survey import IndexSurvey
from tandem.search.metrics import StageLaps, timed_stage
from tandem.search.query import SearchQuery
from tandem.search.search import SearchAnswer, Searcher
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token
from tandem.search.writes.ingest import Ingester
from tandem.search.writes.ingest_stream import IngestStream
from tandem.search.writes.removal import Remover
from tandem.v1 import search_service_pb2, search_service_pb2_grpc
from tandem.wire import (
    item_error_to_proto,
)

# Characters of filters that take about a millisecond to parse.
_LONG_FILTER_TEXT = 1_000


class SearchServicer(search_service_pb2_grpc.SearchServiceServicer):
    """Serves the public API."""

    def __init__(  # noqa: PLR0913 (one for each kind of call)
        self,
        searcher: Searcher,
        batch_searcher: BatchSearcher,
        ingester: Ingester,
        remover: Remover,
        shard_map: ShardMap,
        *,
        index_survey: IndexSurvey,
        index_list: IndexList,
        default_timeout_seconds: float,
        max_timeout_seconds: float,
        ingest_pending_batch_count: int,
    ) -> None:
        self._searcher = searcher
        self._batch_searcher = batch_searcher
        self._remover = remover
        self._shard_map = shard_map
        self._index_survey = index_survey
        self._index_list = index_list
        self._default_timeout_seconds = default_timeout_seconds
        self._max_timeout_seconds = max_timeout_seconds
        self._ingest_stream = IngestStream(
            ingester, batch_from_proto, pending_batch_count=ingest_pending_batch_count
        )
        self.content_budget = ContentBudget()

    async def SearchItems(
        self, request: search_service_pb2.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.SearchItemsResponse:
        """Answers one query, or returns another page of an earlier answer."""
        self.content_budget.hold_for(context)
        if request.cursor:
            return await self._turn_page(request, self._search_deadline(context))
        query = await _query(request)
        async with self._index_list.naming():
            answer = await self._searcher.search(query, self._search_deadline(context))
        return answer_to_proto(answer)

    async def StreamSearchItems(
        self,
        request: search_service_pb2.StreamSearchItemsRequest,
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[search_service_pb2.StreamSearchItemsResponse]:
        """Answers one query twice: as retrieved, then reranked. A cursor has one answer."""
        self.content_budget.hold_for(context)
        deadline = self._search_deadline(context)
        if request.search.cursor:
            page = await self._turn_page(request.search, deadline)
            yield _phase(search_service_pb2.SEARCH_PHASE_FINAL, page)
            return
        query = await _query(request.search)
        answers = self._searcher.stream(query, deadline)
        async with aclosing(answers):
            async with self._index_list.naming():
                retrieved = await anext(answers)
            yield _phase(search_service_pb2.SEARCH_PHASE_RETRIEVED, answer_to_proto(retrieved))
            yield _phase(
                search_service_pb2.SEARCH_PHASE_FINAL, answer_to_proto(await anext(answers))
            )

    async def BatchSearchItems(
        self,
        request: search_service_pb2.BatchSearchItemsRequest,
        context: grpc.aio.ServicerContext,
    ) -> search_service_pb2.BatchSearchItemsResponse:
        """Answers several queries, each with its answer or its own error."""
        self.content_budget.hold_for(context)
        check_batch_size("searches", len(request.searches), MAX_SEARCH_COUNT)
        queries = await converted(
            lambda: [_batched_query(each) for each in request.searches],
            is_slow=_has_long_text(request.searches),
        )
        outcomes = await self._index_list.named_each(
            await self._batch_searcher.search_each(queries, self._search_deadline(context))
        )
        return search_service_pb2.BatchSearchItemsResponse(
            results=[_batch_result(outcome) for outcome in outcomes]
        )

    async def _turn_page(
        self, request: search_service_pb2.SearchItemsRequest, deadline: Deadline
    ) -> search_service_pb2.SearchItemsResponse:
        """Encodes, searches and scores nothing: the cursor holds everything but the contents."""
        laps = StageLaps()
        with timed_stage("rank", laps):
            page = page_from_proto(request)
        contents: Mapping[str, FetchedItem] = {}
        if page.content_included or page.attributes_included:
            contents = await self._searcher.fetch(
                page.index_id,
                page.ranked,
                deadline,
                laps,
                content_included=page.content_included,
            )
        return page_to_proto(page, contents, laps.seconds)

    async def IngestItems(
        self,
        request_iterator: AsyncIterator[search_service_pb2.IngestItemsRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[search_service_pb2.IngestItemsResponse]:
        """Answers each batch in order, while later ones are already being encoded.

        Each answer's consistency token covers the batches before it too, so the last is enough.
        """
        async with aclosing(self._ingest_stream.answers(request_iterator)) as answers:
            async for batch, ingested in answers:
                token = make_token(ingested.sequences, self._shard_map)
                yield ingested_to_proto(batch, ingested, token)

    async def RemoveItems(
        self, request: search_service_pb2.RemoveItemsRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.RemoveItemsResponse:
        """Deletes items on the shards that own them."""
        removal = await self._remover.remove(
            request.index_id, request.item_ids, request.request_id, self._deadline(context)
        )
        return search_service_pb2.RemoveItemsResponse(
            removed_count=removal.removed_count,
            consistency_token=make_token(removal.sequences, self._shard_map),
        )

    async def RemoveIndex(
        self, request: search_service_pb2.RemoveIndexRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.RemoveIndexResponse:
        """Deletes an index, or a part of a large one, on all shards."""
        async with self._index_list.naming():
            removal = await self._remover.remove_index(request.index_id, self._deadline(context))
        return search_service_pb2.RemoveIndexResponse(
            removed_count=removal.removed_count,
            consistency_token=make_token(removal.sequences, self._shard_map),
            is_complete=removal.is_complete,
        )

    async def DescribeIndex(
        self, request: search_service_pb2.DescribeIndexRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.DescribeIndexResponse:
        """Describes an index on all shards, or on those that answer."""
        async with self._index_list.naming():
            surveyed = await self._index_survey.describe(
                request.index_id,
                self._search_deadline(context),
                full_coverage_required=request.full_coverage_required,
            )
        return surveyed_to_proto(surveyed)

    async def ListIndexes(
        self, request: search_service_pb2.ListIndexesRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.ListIndexesResponse:
        """Returns one page of the indexes that the caller may search."""
        page = await self._index_list.page(
            request.page_token,
            request.page_size if request.HasField("page_size") else DEFAULT_PAGE_SIZE,
            self._search_deadline(context),
            full_coverage_required=request.full_coverage_required,
        )
        return listed_to_proto(page)

    def _deadline(self, context: grpc.aio.ServicerContext) -> Deadline:
        return Deadline.of_call(context, default_seconds=self._default_timeout_seconds)

    def _search_deadline(self, context: grpc.aio.ServicerContext) -> Deadline:
        return Deadline.of_call(
            context,
            default_seconds=self._default_timeout_seconds,
            max_seconds=self._max_timeout_seconds,
        )


def _phase(
    phase: search_service_pb2.SearchPhase, answer: search_service_pb2.SearchItemsResponse
) -> search_service_pb2.StreamSearchItemsResponse:
    return search_service_pb2.StreamSearchItemsResponse(phase=phase, answer=answer)


async def _query(request: search_service_pb2.SearchItemsRequest) -> SearchQuery:
    return await converted(partial(query_from_proto, request), is_slow=_has_long_text([request]))


def _has_long_text(searches: Iterable[search_service_pb2.SearchItemsRequest]) -> bool:
    return sum(len(each.filter_text) for each in searches) > _LONG_FILTER_TEXT


def _batched_query(request: search_service_pb2.SearchItemsRequest) -> SearchQuery | TandemError:
    if request.cursor:
        return CursorInvalid(why="cursors are not allowed in a batch")
    try:
        return query_from_proto(request)
    except TandemError as error:
        return error.kept()


def _batch_result(outcome: SearchAnswer | TandemError) -> search_service_pb2.BatchSearchResult:
    if isinstance(outcome, TandemError):
        return search_service_pb2.BatchSearchResult(error=item_error_to_proto(outcome))
    return search_service_pb2.BatchSearchResult(response=answer_to_proto(outcome))
