"""The SDK for asyncio programs, with the same calls as Client."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from typing_extensions import Self, Unpack

from tandem.client.access import Access
from tandem.client.ingest_progress import IngestProgress, ProgressCounter
from tandem.client.item import NewItem
from tandem.client.query import Query, Search, SearchOptions, page_request, search_request
from tandem.client.refusal import check_answered, checked_answer, error_of
from tandem.client.requests import (
    IngestRequests,
    remove_index_request,
    remove_request,
    request_metadata,
)
from tandem.client.results import (
    IngestOutcome,
    Removal,
    SearchResult,
    batch_results,
    index_removal,
    removal,
    search_result,
    streamed_result,
)
from tandem.client.retries import DEFAULT_RETRIES, Retries, RetryPolicy
from tandem.client.server_status import ServerStatus
from tandem.client.trace_headers import trace_headers
from tandem.contract.content import TruncationPolicy
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.errors import TandemError
from tandem.v1 import (
    model_service_pb2,
    model_service_pb2_grpc,
    search_service_pb2,
    search_service_pb2_grpc,
)

_Response = TypeVar("_Response")


class AsyncClient:
    """Calls Tandem from an event loop. Close it, or use it in an async with statement."""

    def __init__(
        self,
        address: str,
        timeout_seconds: float = 10.0,
        access: Access | None = None,
        *,
        retries: RetryPolicy = DEFAULT_RETRIES,
    ) -> None:
        """Takes what `Client` takes. Create it while the event loop runs."""
        self._address = address
        self._access = access or Access()
        self._timeout_seconds = timeout_seconds
        self._retries = Retries(retries)
        self._channel = self._access.open_aio_channel(address)
        self._stub = search_service_pb2_grpc.SearchServiceStub(self._channel)
        self._model_stub = model_service_pb2_grpc.ModelServiceStub(self._channel)

    async def search(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Returns the items that match a query, best first. See `Client.search`."""
        request = search_request(query, index_id=index_id, **options)
        return search_result(await self._call(self._stub.SearchItems, request))

    async def search_page(
        self,
        cursor: bytes,
        *,
        index_id: str,
        return_n: int | None = None,
        content_included: bool = False,
    ) -> SearchResult:
        """Returns the next page of an answer. See `Client.search_page`."""
        request = page_request(
            cursor, index_id=index_id, return_n=return_n, content_included=content_included
        )
        return search_result(await self._call(self._stub.SearchItems, request))

    async def search_stream(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> AsyncIterator[SearchResult]:
        """Yields the answer in bi-encoder order, then the final one. See `Client.search_stream`."""
        search = search_request(query, index_id=index_id, **options)
        request = search_service_pb2.StreamSearchItemsRequest(search=search)
        attempts = self._retries.start(self._timeout_seconds, is_repeatable=True)
        metadata = self._metadata()
        while True:
            call = self._stub.StreamSearchItems(
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
                delay_seconds = None if is_begun else attempts.delay_after(named)
                if delay_seconds is None:
                    raise named from error
            finally:
                # Cancels the rerank if the caller stops after the first answer.
                call.cancel()
            await asyncio.sleep(delay_seconds)

    async def search_batch(self, searches: Iterable[Search]) -> list[SearchResult | TandemError]:
        """Returns the outcome of each of several searches. See `Client.search_batch`."""
        asked = list(searches)
        request = search_service_pb2.BatchSearchItemsRequest(
            searches=[search.request for search in asked]
        )
        response = await self._call(self._stub.BatchSearchItems, request)
        return batch_results(response, [search.error for search in asked], self._address)

    async def describe_model(self) -> ModelDescription:
        """Returns the model and its limits. See `Client.describe_model`."""
        request = model_service_pb2.DescribeModelRequest()
        return model_from_proto((await self._call(self._model_stub.DescribeModel, request)).model)

    async def ingest(
        self,
        items: Iterable[NewItem],
        *,
        index_id: str,
        batch_item_count: int = 32,
        request_id: str = "",
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> AsyncIterator[IngestOutcome]:
        """Stores items, and yields each one's outcome in order. See `Client.ingest`."""
        requests = IngestRequests(
            items, index_id, batch_item_count, request_id, truncation_policy, target=self._address
        )
        counter = ProgressCounter(items, progress)
        metadata = self._metadata()
        call = self._stub.IngestItems(iter(requests), metadata=metadata)
        status = ServerStatus(call)
        try:
            async for response in call:
                outcomes = list(requests.outcomes(checked_answer(response, self._address)))
                counter.note(outcomes)
                for outcome in outcomes:
                    yield outcome
            requests.check_all_answered()
        except grpc.aio.AioRpcError as error:
            if requests.error is not None:
                raise requests.error from error
            told = await status.behind(error)
            raise error_of(told, self._address, dict(metadata)) from error
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            # grpc.aio cancels its own call where the batches raise, and where the call ends
            # just before gRPC says that all batches were written.
            if requests.error is not None:
                raise requests.error from error
            told = await status.behind_cancellation()
            raise error_of(told, self._address, dict(metadata)) from error
        finally:
            # If the caller stops early, gRPC must not continue to read `items`.
            call.cancel()

    async def remove(
        self, item_ids: Iterable[str], *, index_id: str, request_id: str = ""
    ) -> Removal:
        """Deletes items by id. See `Client.remove`."""
        request = remove_request(item_ids, index_id, request_id)
        # Under a request id the second attempt gets the first one's answer.
        is_repeatable = bool(request_id)
        response = await self._call(self._stub.RemoveItems, request, is_repeatable=is_repeatable)
        return removal(response)

    async def remove_index(self, *, index_id: str) -> Removal:
        """Deletes an index. See `Client.remove_index`."""
        request = remove_index_request(index_id)
        response = await self._call(self._stub.RemoveIndex, request, is_repeatable=False)
        return index_removal(response)

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*request_metadata(), *trace_headers(), *self._access.metadata())

    async def _call(
        self,
        method: Callable[..., Awaitable[_Response]],
        request: Message,
        *,
        is_repeatable: bool = True,
    ) -> _Response:
        attempts = self._retries.start(self._timeout_seconds, is_repeatable=is_repeatable)
        metadata = self._metadata()
        while True:
            try:
                timeout_seconds = attempts.timeout_seconds
                answer = await method(request, timeout=timeout_seconds, metadata=metadata)
                break
            except grpc.aio.AioRpcError as error:
                named = error_of(error, self._address, dict(metadata))
                if (delay_seconds := attempts.delay_after(named)) is None:
                    raise named from error
            await asyncio.sleep(delay_seconds)
        attempts.note_answer()
        return checked_answer(answer, self._address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _is_being_cancelled() -> bool:
    """Returns whether somebody cancelled the task that runs; before Python 3.11 always true."""
    task = asyncio.current_task()
    if sys.version_info < (3, 11) or task is None:
        return True
    return task.cancelling() > 0
