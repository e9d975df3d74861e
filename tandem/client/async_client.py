"""The SDK for asyncio programs, with the same calls as Client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from typing_extensions import Self, Unpack

from tandem.client.access import Access
from tandem.client.arguments import checked_timeout_seconds
from tandem.client.connections import AsyncConnection
from tandem.client.documents import NewDocument, ScoredDocuments, score_request, scored_documents
from tandem.client.index_description import (
    IndexDescription,
    IndexListing,
    ListedPages,
    describe_index_request,
    index_description,
)
from tandem.client.ingest_progress import IngestProgress, ProgressCounter
from tandem.client.ingest_rounds import IngestRounds
from tandem.client.item import NewContent, NewItem
from tandem.client.query import Query, Search, checked_searches, page_request, search_request
from tandem.client.refusal import check_answered, checked_answer, error_of, is_break
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
from tandem.client.search_options import SearchOptions, takes_options
from tandem.client.server_status import ServerStatus, is_being_cancelled
from tandem.client.trace_headers import trace_headers
from tandem.contract.content import TruncationPolicy
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.errors import TandemError
from tandem.v1 import model_service_pb2, search_service_pb2

_Response = TypeVar("_Response")


class AsyncClient:
    """Calls Tandem from an event loop. Close it, or use it in an async with statement.

    It has the methods of `Client`. Those that return one answer are awaited; `search_stream` and
    `ingest` are iterated over with `async for`. Calls run side by side over one connection.
    """

    def __init__(
        self,
        address: str,
        timeout_seconds: float = 10.0,
        access: Access | None = None,
        *,
        retries: RetryPolicy = DEFAULT_RETRIES,
    ) -> None:
        """Connects with the first call to an orchestrator at `address`, a host:port.

        `timeout_seconds` is the deadline of each call but `ingest`, which has none. `access` holds
        token and certificates; by default the client uses plain text and no token. `retries` says
        how often a failed call is repeated within its deadline; see `RetryPolicy`.

        Each event loop that calls has a connection of its own.
        """
        self._address = address
        self._access = access or Access()
        self._timeout_seconds = checked_timeout_seconds(timeout_seconds)
        self._retries = Retries(retries)
        self._connection = AsyncConnection(self._access, address)

    @takes_options
    async def search(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Returns the items that match a query, best first.

        The query is a text, the bytes of an image, a StoredItem, a GivenEncoding, or a list of
        QueryParts. An answer can be degraded: `result.degradations` lists how, `coverage` and
        `rerank` how far. Raises a TandemError.
        """
        request = search_request(query, index_id=index_id, **options)
        return search_result(
            await self._call(self._connection.current().search.SearchItems, request)
        )

    async def search_page(
        self,
        cursor: bytes,
        *,
        index_id: str,
        return_n: int | None = None,
        content_included: bool = False,
        attributes_included: bool = False,
    ) -> SearchResult:
        """Returns the items after those of the answer with this `next_cursor`.

        They keep the ranking of that search, whatever changed since; a deleted item has no content.
        By default the page has as many items as that search. Raises CursorInvalid.
        """
        request = page_request(
            cursor,
            index_id=index_id,
            return_n=return_n,
            content_included=content_included,
            attributes_included=attributes_included,
        )
        return search_result(
            await self._call(self._connection.current().search.SearchItems, request)
        )

    @takes_options
    async def search_stream(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> AsyncIterator[SearchResult]:
        """Yields the answer in bi-encoder order, then the final one; takes what `search` takes.

        Iterate over it with `async for`; leaving it early with `aclose()` cancels the rerank.
        """
        search = search_request(query, index_id=index_id, **options)
        request = search_service_pb2.StreamSearchItemsRequest(search=search)
        attempts = self._retries.start(self._timeout_seconds, is_repeatable=True)
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

    async def search_batch(self, searches: Iterable[Search]) -> list[SearchResult | TandemError]:
        """Returns the outcome of each of at most 64 searches: its answer or its error.

        The searches share batches of encoding and reranking. Raises if the whole call fails.
        """
        checked = checked_searches(searches)
        request = search_service_pb2.BatchSearchItemsRequest(
            searches=[search.request for search in checked]
        )
        response = await self._call(self._connection.current().search.BatchSearchItems, request)
        return batch_results(response, [search.error for search in checked], self._address)

    async def score_documents(
        self,
        query: NewContent,
        documents: Sequence[NewDocument],
        *,
        index_id: str = "",
        truncation_policy: TruncationPolicy | str = TruncationPolicy.ERROR,
    ) -> ScoredDocuments:
        """Returns how well each of at most 200 documents matches the query, in their order.

        A document is a text, the bytes of an image, or a StoredItem of the index. The cross-encoder
        scores those of the other modality than the query; texts for a text and images for an image
        have a similarity instead. A document that fails has an error in its place. Raises a
        TandemError.
        """
        request = score_request(query, documents, index_id, truncation_policy)
        response = await self._call(self._connection.current().content.ScoreDocuments, request)
        return scored_documents(response)

    async def describe_model(self) -> ModelDescription:
        """Returns the model and its limits."""
        request = model_service_pb2.DescribeModelRequest()
        response = await self._call(self._connection.current().model.DescribeModel, request)
        return model_from_proto(response.model)

    async def describe_index(
        self, *, index_id: str, full_coverage_required: bool = False
    ) -> IndexDescription:
        """Returns the state of an index: its items, what searches them, and their live recall.

        A shard that does not answer is left out, and `coverage` says so; with
        `full_coverage_required` ShardsMissing is raised instead. Raises IndexNotFound.
        """
        request = describe_index_request(index_id, full_coverage_required=full_coverage_required)
        return index_description(
            await self._call(self._connection.current().search.DescribeIndex, request)
        )

    async def list_indexes(self, *, full_coverage_required: bool = False) -> IndexListing:
        """Returns the indexes that this client may search, with their items.

        Items of a shard that does not answer are left out, and `missing_shards` says so; with
        `full_coverage_required` ShardsMissing is raised instead.
        """
        pages = ListedPages(full_coverage_required=full_coverage_required)
        while pages.next_request is not None:
            pages.put(
                await self._call(self._connection.current().search.ListIndexes, pages.next_request)
            )
        return pages.listing

    async def ingest(
        self,
        items: Iterable[NewItem],
        *,
        index_id: str,
        batch_item_count: int = 32,
        request_id: str = "",
        truncation_policy: TruncationPolicy | str = TruncationPolicy.ERROR,
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> AsyncIterator[IngestOutcome]:
        """Stores items, and yields each one's outcome in order.

        An item is an `Item`, (item id, content) or (item id, content, attributes). A refused item
        does not stop the others. The client reads `items` only as fast as the server accepts them.
        Raises a TandemError if the stream fails; items yielded without an error by then are stored.

        Items that the server could not take because it was busy or unavailable are sent again, as
        `retries` says, and yielded later; nothing new is read meanwhile. Under a `request_id`,
        which stands for batches as they are, they are refused at once.

        `batch_item_count` items, at most 64, are sent together and answered together.

        `truncation_policy`: a text over the model's limit is refused (TextTooLong), or truncated
        with TruncationPolicy.TRUNCATE; `text_use` of its outcome says how much was read.

        `progress` is called with the counts after each batch, before its outcomes are yielded; what
        it raises ends the ingest.

        A `request_id` of at most 50 bytes makes a retry with the same items safe: stored items are
        not stored again.

        Iterate over it with `async for`; leaving it early with `aclose()` cancels the call, as
        cancelling the task does. gRPC reads `items` in the event loop, which a slow source blocks.
        """
        rounds = IngestRounds(items, self._retries, batch_item_count, is_repeatable=not request_id)
        counter = ProgressCounter(items, progress)
        delay_seconds: float | None = 0.0
        while delay_seconds is not None:
            await asyncio.sleep(delay_seconds)
            size = rounds.batch_item_count
            requests = IngestRequests(
                rounds, index_id, size, request_id, truncation_policy, target=self._address
            )
            metadata = self._metadata()
            call = self._connection.current().search.IngestItems(iter(requests), metadata=metadata)
            status = ServerStatus(call)
            try:
                async for response in call:
                    answered = requests.outcomes(checked_answer(response, self._address))
                    outcomes = rounds.final(list(answered))
                    counter.note(outcomes, rounds.waiting_count)
                    for outcome in outcomes:
                        yield outcome
                requests.check_all_answered()
            except grpc.aio.AioRpcError as error:
                if requests.error is not None:
                    raise requests.error from error
                failure = await status.hidden_by(error)
                raise error_of(failure, self._address, dict(metadata)) from error
            except asyncio.CancelledError as error:
                if is_being_cancelled():
                    raise
                # grpc.aio cancels its own call where the batches raise, and where the call ends
                # just before gRPC says that all batches were written.
                if requests.error is not None:
                    raise requests.error from error
                failure = await status.hidden_by_cancellation()
                raise error_of(failure, self._address, dict(metadata)) from error
            finally:
                # If the caller stops early, gRPC must not continue to read `items`.
                call.cancel()
            delay_seconds = rounds.delay_seconds()

    async def remove(
        self, item_ids: Iterable[str], *, index_id: str, request_id: str = ""
    ) -> Removal:
        """Deletes items by id, and returns how many existed.

        If a shard fails, raises a TandemError whose message says which items were deleted. A retry
        with the same `request_id`, at most 64 bytes, gets the first answer.
        """
        request = remove_request(item_ids, index_id, request_id)
        # Under a request id the second attempt gets the first one's answer.
        is_repeatable = bool(request_id)
        response = await self._call(
            self._connection.current().search.RemoveItems, request, is_repeatable=is_repeatable
        )
        return removal(response)

    async def remove_index(self, *, index_id: str) -> Removal:
        """Deletes an index: all of its items, or a part of a large index.

        Repeat the call until `is_complete`. Raises IndexNotFound, and, if a shard fails, a
        TandemError whose message says how much was deleted.
        """
        request = remove_index_request(index_id)
        response = await self._call(
            self._connection.current().search.RemoveIndex, request, is_repeatable=False
        )
        return index_removal(response)

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
