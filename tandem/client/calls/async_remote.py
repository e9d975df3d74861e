"""Carries the calls of `AsyncClient` over a connection, and repeats those that may be."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from tandem.client.access import Access
from tandem.client.calls.connections import AsyncConnection
from tandem.client.calls.refusal import check_answered, checked_answer, error_of, is_break
from tandem.client.calls.retries import Retries, RetryPolicy
from tandem.client.calls.server_status import ServerStatus, is_being_cancelled
from tandem.client.calls.trace_headers import trace_headers
from tandem.client.ingest.batches import IngestBatches, SentBatches
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.contract.model_description import MODEL_WIRE, ModelDescription
from tandem.contract.search.answer import IngestOutcome, Removal, SearchResult
from tandem.contract.search.answer_wire import (
    INDEX_REMOVAL_WIRE,
    REMOVAL_WIRE,
    batch_results,
    result_from_proto,
    streamed_result,
)
from tandem.contract.search.documents import (
    DOCUMENT_QUERY_WIRE,
    SCORED_WIRE,
    DocumentQuery,
    ScoredDocuments,
)
from tandem.contract.search.indexes import DESCRIPTION_WIRE, PAGE_WIRE, IndexDescription, IndexPage
from tandem.contract.search.ingest_wire import batch_to_proto, outcomes_from_proto
from tandem.contract.search.item_changes import (
    Changes,
    ItemListing,
    ItemsChange,
    ItemsRemoval,
    KeptItem,
)
from tandem.contract.search.item_changes_wire import (
    CHANGE_WIRE,
    CHANGES_WIRE,
    KEPT_WIRE,
    LISTING_WIRE,
    REMOVAL_QUERY_WIRE,
)
from tandem.contract.search.query import PageQuery, SearchQuery
from tandem.contract.search.query_wire import searched_to_proto
from tandem.contract.search.score_calibration import SCORE_CALIBRATION_WIRE, ScoreCalibration
from tandem.errors import TandemError
from tandem.v1 import content_service_pb2, model_service_pb2, search_service_pb2

_Response = TypeVar("_Response")


class AsyncRemote:
    """Calls an orchestrator over one connection for each event loop that calls."""

    def __init__(
        self, address: str, timeout_seconds: float, access: Access, retries: RetryPolicy
    ) -> None:
        """Connects with the first call."""
        self.retries = Retries(retries)
        self._address = address
        self._access = access
        self._timeout_seconds = timeout_seconds
        self._connection = AsyncConnection(access, address)

    async def search(self, query: SearchQuery | PageQuery) -> SearchResult:
        """Returns the answer."""
        request = searched_to_proto(query)
        return result_from_proto(
            await self._call(self._connection.current().search.SearchItems, request)
        )

    async def stream(self, query: SearchQuery) -> AsyncGenerator[SearchResult, None]:
        """Yields the answer in bi-encoder order, then the final one."""
        request = search_service_pb2.StreamSearchItemsRequest(search=searched_to_proto(query))
        attempts = self.retries.start(self._timeout_seconds, is_repeatable=True)
        metadata = self._metadata()
        while True:
            call = self._connection.current().search.StreamSearchItems(
                request, timeout=attempts.timeout_seconds, metadata=metadata
            )
            is_begun = is_answered = False
            try:
                async for response in call:
                    is_begun = True
                    result = streamed_result(checked_answer(response, self._address))
                    is_answered |= result.is_final
                    yield result
                check_answered(is_answered, self._address)
                attempts.note_answer()
                return
            except grpc.aio.AioRpcError as error:
                named = error_of(error, self._address, dict(metadata))
                delay_seconds = (
                    None if is_begun else attempts.delay_after(named, is_break=is_break(error))
                )
                if delay_seconds is None:
                    raise named from error
            finally:
                # Cancels the rerank if the caller stops after the first answer.
                call.cancel()
            await asyncio.sleep(delay_seconds)

    async def search_each(
        self, queries: Sequence[SearchQuery | TandemError]
    ) -> list[SearchResult | TandemError]:
        """Returns the outcome of each query; one that is an error stays one."""
        # A search without a query takes its place; the server refuses only that one.
        request = search_service_pb2.BatchSearchItemsRequest(
            searches=[
                search_service_pb2.SearchItemsRequest()
                if isinstance(query, TandemError)
                else searched_to_proto(query)
                for query in queries
            ]
        )
        response = await self._call(self._connection.current().search.BatchSearchItems, request)
        errors = [query if isinstance(query, TandemError) else None for query in queries]
        return batch_results(response, errors, self._address)

    async def score_documents(self, query: DocumentQuery) -> ScoredDocuments:
        """Returns each document's score or error."""
        request = DOCUMENT_QUERY_WIRE.to_proto(query)
        response = await self._call(self._connection.current().content.ScoreDocuments, request)
        return SCORED_WIRE.from_proto(response)

    async def embed(
        self, request: content_service_pb2.EmbedContentsRequest
    ) -> content_service_pb2.EmbedContentsResponse:
        """Returns each content's embedding or error, and the model that made them."""
        method = self._connection.current().content.EmbedContents
        response: content_service_pb2.EmbedContentsResponse = await self._call(method, request)
        return response

    async def describe_model(self) -> ModelDescription:
        """Returns the model and its limits."""
        request = model_service_pb2.DescribeModelRequest()
        response = await self._call(self._connection.current().model.DescribeModel, request)
        return MODEL_WIRE.from_proto(response.model)

    async def describe_index(
        self, index_id: str, *, full_coverage_required: bool
    ) -> IndexDescription:
        """Returns the state of an index."""
        request = search_service_pb2.DescribeIndexRequest(
            index_id=index_id, full_coverage_required=full_coverage_required
        )
        return DESCRIPTION_WIRE.from_proto(
            await self._call(self._connection.current().search.DescribeIndex, request)
        )

    async def list_indexes(self, after: str, *, full_coverage_required: bool) -> IndexPage:
        """Returns indexes after that id."""
        request = search_service_pb2.ListIndexesRequest(
            page_token=after,
            page_size=MAX_PAGE_SIZE,
            full_coverage_required=full_coverage_required,
        )
        return PAGE_WIRE.from_proto(
            await self._call(self._connection.current().search.ListIndexes, request)
        )

    async def set_calibrations(
        self, calibrations: Sequence[ScoreCalibration], index_id: str
    ) -> int:
        """Stores what was measured."""
        request = search_service_pb2.SetCalibrationsRequest(
            index_id=index_id, calibrations=map(SCORE_CALIBRATION_WIRE.to_proto, calibrations)
        )
        method = self._connection.current().search.SetCalibrations
        return int((await self._call(method, request)).calibration_count)

    async def ingest(self, batches: IngestBatches) -> AsyncGenerator[list[IngestOutcome], None]:
        """Yields each batch's outcomes, in order.

        gRPC reads the batches in the event loop, or in a thread of its own.
        """
        sent = SentBatches(batches, self._address)
        metadata = self._metadata()
        call = self._connection.current().search.IngestItems(
            map(batch_to_proto, sent), metadata=metadata
        )
        status = ServerStatus(call)
        try:
            async for response in call:
                answer = checked_answer(response, self._address)
                yield sent.outcomes(list(outcomes_from_proto(answer)))
            sent.check_all_answered()
        except grpc.aio.AioRpcError as error:
            if sent.error is not None:
                raise sent.error from error
            failure = await status.hidden_by(error)
            raise error_of(failure, self._address, dict(metadata)) from error
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            # grpc.aio cancels its own call where the batches raise, and where the call ends
            # just before gRPC says that all batches were written.
            if sent.error is not None:
                raise sent.error from error
            failure = await status.hidden_by_cancellation()
            raise error_of(failure, self._address, dict(metadata)) from error
        finally:
            # If the caller stops early, gRPC must not continue to read the batches.
            call.cancel()

    async def fetch(self, index_id: str, item_ids: Sequence[str]) -> Sequence[KeptItem]:
        """Returns the items that exist."""
        request = content_service_pb2.FetchItemsRequest(index_id=index_id, item_ids=item_ids)
        response = await self._call(self._connection.current().content.FetchItems, request)
        return list(map(KEPT_WIRE.from_proto, response.items))

    async def list_items(self, asked: ItemListing) -> tuple[Sequence[KeptItem], str]:
        """Returns a page of items, and the token of the next, if there may be more."""
        request = LISTING_WIRE.to_proto(asked)
        response = await self._call(self._connection.current().content.ListItems, request)
        items = map(KEPT_WIRE.from_proto, response.items)
        return list(items) or list(map(KeptItem, response.item_ids)), response.next_page_token

    async def change(self, asked: ItemsChange) -> Changes:
        """Changes items; under a request id a second attempt gets the first one's answer."""
        method = self._connection.current().search.ChangeItems
        # What a selection changed is as it should be after a second attempt too.
        return CHANGES_WIRE.from_proto(await self._call(method, CHANGE_WIRE.to_proto(asked)))

    async def remove(self, asked: ItemsRemoval) -> Removal:
        """Deletes items; under a request id a second attempt gets the first one's answer."""
        response = await self._call(
            self._connection.current().search.RemoveItems,
            REMOVAL_QUERY_WIRE.to_proto(asked),
            is_repeatable=bool(asked.request_id or asked.dry_run),
        )
        return REMOVAL_WIRE.from_proto(response, is_complete=not response.next_page_token)

    async def remove_index(self, index_id: str) -> Removal:
        """Deletes an index, or a part of a large one."""
        request = search_service_pb2.RemoveIndexRequest(index_id=index_id)
        response = await self._call(
            self._connection.current().search.RemoveIndex, request, is_repeatable=False
        )
        return INDEX_REMOVAL_WIRE.from_proto(response)

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("x-request-id", uuid.uuid4().hex), *trace_headers(), *self._access.metadata())

    async def _call(
        self,
        method: Callable[..., Awaitable[_Response]],
        request: Message,
        *,
        is_repeatable: bool = True,
    ) -> _Response:
        attempts = self.retries.start(self._timeout_seconds, is_repeatable=is_repeatable)
        metadata = self._metadata()
        while True:
            try:
                async with self._connection.current().places:
                    # None is left if the call waited for a place until its deadline.
                    timeout_seconds = attempts.timeout_seconds
                    answer = await method(request, timeout=timeout_seconds, metadata=metadata)
                break
            except grpc.aio.AioRpcError as error:
                named = error_of(error, self._address, dict(metadata))
                if (delay_seconds := attempts.delay_after(named, is_break=is_break(error))) is None:
                    raise named from error
            await asyncio.sleep(delay_seconds)
        attempts.note_answer()
        return checked_answer(answer, self._address)
