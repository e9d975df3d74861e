"""SearchService: converts messages, and calls the orchestrator."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import grpc

from orchestrator_svc.call_deadline import CallDeadline
from tandem.chassis.process.side_thread import converted
from tandem.contract.limits import DEFAULT_PAGE_SIZE
from tandem.contract.record_wire import or_error
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.answer_wire import (
    INDEX_REMOVAL_WIRE,
    REMOVAL_WIRE,
    item_error_to_proto,
    result_to_proto,
)
from tandem.contract.search.indexes import DESCRIPTION_WIRE, PAGE_WIRE
from tandem.contract.search.ingest_wire import batch_from_proto, outcomes_to_proto
from tandem.contract.search.item_changes_wire import (
    CHANGE_WIRE,
    CHANGES_WIRE,
    REMOVAL_QUERY_WIRE,
)
from tandem.contract.search.query import PageQuery, SearchQuery
from tandem.contract.search.query_wire import page_query_from_proto, query_from_proto
from tandem.contract.search.score_calibration import SCORE_CALIBRATION_WIRE
from tandem.errors import CursorInvalid, ServiceUnavailable, TandemError
from tandem.search.contents.content_budget import ContentBudget
from tandem.search.orchestrator import Orchestrator
from tandem.v1 import search_service_pb2, search_service_pb2_grpc

# Characters of filters that take about a millisecond to parse.
_LONG_FILTER_TEXT = 1_000


class SearchServicer(search_service_pb2_grpc.SearchServiceServicer):
    """Serves the public API."""

    def __init__(
        self, orchestrator: Orchestrator, deadline: CallDeadline, content_budget: ContentBudget
    ) -> None:
        self.orchestrator = orchestrator
        self._deadline = deadline
        self._content_budget = content_budget

    async def SearchItems(
        self, request: search_service_pb2.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.SearchItemsResponse:
        """Answers one query, or returns another page of an earlier answer."""
        self._content_budget.hold_for(context)
        deadline = self._deadline.of_search(context)
        match await _query(request):
            case PageQuery() as page:
                return result_to_proto(await self.orchestrator.page(page, deadline))
            case query:
                return result_to_proto(await self.orchestrator.search(query, deadline))

    async def StreamSearchItems(
        self,
        request: search_service_pb2.StreamSearchItemsRequest,
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[search_service_pb2.StreamSearchItemsResponse]:
        """Answers one query twice: as retrieved, then reranked. A cursor has one answer."""
        self._content_budget.hold_for(context)
        deadline = self._deadline.of_search(context)
        query = await _query(request.search)
        if isinstance(query, PageQuery):
            yield _phase(await self.orchestrator.page(query, deadline))
            return
        async with aclosing(self.orchestrator.stream(query, deadline)) as answers:
            async for answer in answers:
                yield _phase(answer)

    async def BatchSearchItems(
        self,
        request: search_service_pb2.BatchSearchItemsRequest,
        context: grpc.aio.ServicerContext,
    ) -> search_service_pb2.BatchSearchItemsResponse:
        """Answers several queries, each with its answer or its own error."""
        self._content_budget.hold_for(context)
        queries = await converted(
            lambda: [_batched_query(each) for each in request.searches],
            is_slow=_has_long_text(request.searches),
        )
        outcomes = await self.orchestrator.search_each(queries, self._deadline.of_search(context))
        return search_service_pb2.BatchSearchItemsResponse(results=map(_batch_result, outcomes))

    async def IngestItems(
        self,
        request_iterator: AsyncIterator[search_service_pb2.IngestItemsRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[search_service_pb2.IngestItemsResponse]:
        """Answers each batch in order, while later ones are already being encoded.

        Each answer's consistency token covers the batches before it too, so the last is enough.
        """
        batches = (
            await converted(partial(batch_from_proto, each)) async for each in request_iterator
        )
        answers = self.orchestrator.ingest_stream.answers(batches)
        async with aclosing(answers):
            async for outcomes in answers:
                yield outcomes_to_proto(outcomes)

    async def ChangeItems(
        self, request: search_service_pb2.ChangeItemsRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.ChangeItemsResponse:
        """Changes items on the shards that own them."""
        called, deadline = self.orchestrator, self._deadline.of_call(context)
        asked = await converted(partial(CHANGE_WIRE.from_proto, request), is_slow=True)
        try:
            changes = await called.change(asked, deadline)
        except ServiceUnavailable:
            if called is self.orchestrator:
                raise
            changes = await self.orchestrator.change(asked, deadline)
        return CHANGES_WIRE.to_proto(changes)

    async def RemoveItems(
        self, request: search_service_pb2.RemoveItemsRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.RemoveItemsResponse:
        """Deletes items on the shards that own them."""
        called, deadline = self.orchestrator, self._deadline.of_call(context)
        asked = await converted(partial(REMOVAL_QUERY_WIRE.from_proto, request))
        try:
            removal = await called.remove(asked, deadline)
        except ServiceUnavailable as error:
            if called is self.orchestrator:
                raise
            removal = await self.orchestrator.remove(asked, deadline)  # The shards moved meanwhile.
            before = int(error.metadata.get("removed_count", 0))
            removal = replace(removal, removed_count=removal.removed_count + before)
        return REMOVAL_WIRE.to_proto(removal)

    async def RemoveIndex(
        self, request: search_service_pb2.RemoveIndexRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.RemoveIndexResponse:
        """Deletes an index, or a part of a large one, on all shards."""
        removal = await self.orchestrator.remove_index(
            request.index_id, self._deadline.of_call(context)
        )
        return INDEX_REMOVAL_WIRE.to_proto(removal)

    async def DescribeIndex(
        self, request: search_service_pb2.DescribeIndexRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.DescribeIndexResponse:
        """Describes an index on all shards, or on those that answer."""
        return DESCRIPTION_WIRE.to_proto(
            await self.orchestrator.describe_index(
                request.index_id,
                self._deadline.of_search(context),
                full_coverage_required=request.full_coverage_required,
            )
        )

    async def ListIndexes(
        self, request: search_service_pb2.ListIndexesRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.ListIndexesResponse:
        """Returns one page of the indexes that the caller may search."""
        return PAGE_WIRE.to_proto(
            await self.orchestrator.index_list.page(
                request.page_token,
                request.page_size if request.HasField("page_size") else DEFAULT_PAGE_SIZE,
                self._deadline.of_search(context),
                full_coverage_required=request.full_coverage_required,
            )
        )

    async def SetCalibrations(
        self, request: search_service_pb2.SetCalibrationsRequest, context: grpc.aio.ServicerContext
    ) -> search_service_pb2.SetCalibrationsResponse:
        """Says what the scores of an index mean."""
        count = await self.orchestrator.set_calibrations(
            request.index_id,
            list(map(SCORE_CALIBRATION_WIRE.from_proto, request.calibrations)),
            self._deadline.of_call(context),
        )
        return search_service_pb2.SetCalibrationsResponse(calibration_count=count)


def _phase(answer: SearchResult) -> search_service_pb2.StreamSearchItemsResponse:
    return search_service_pb2.StreamSearchItemsResponse(
        phase=search_service_pb2.SEARCH_PHASE_FINAL
        if answer.is_final
        else search_service_pb2.SEARCH_PHASE_RETRIEVED,
        answer=result_to_proto(answer),
    )


async def _query(request: search_service_pb2.SearchItemsRequest) -> SearchQuery | PageQuery:
    if request.cursor:
        return page_query_from_proto(request)
    return await converted(partial(query_from_proto, request), is_slow=_has_long_text([request]))


def _has_long_text(searches: Iterable[search_service_pb2.SearchItemsRequest]) -> bool:
    return sum(len(each.filter_text) for each in searches) > _LONG_FILTER_TEXT


def _batched_query(request: search_service_pb2.SearchItemsRequest) -> SearchQuery | TandemError:
    if request.cursor:
        return CursorInvalid(why="cursors are not allowed in a batch")
    return or_error(query_from_proto, request)


def _batch_result(outcome: SearchResult | TandemError) -> search_service_pb2.BatchSearchResult:
    if isinstance(outcome, TandemError):
        return search_service_pb2.BatchSearchResult(error=item_error_to_proto(outcome))
    return search_service_pb2.BatchSearchResult(response=result_to_proto(outcome))
