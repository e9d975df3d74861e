"""The SDK for programs without an event loop."""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc
from google.protobuf.message import Message

from tandem.client.access import Access
from tandem.client.query import Query, Search, SearchOptions, page_request, search_request
from tandem.client.refusal import check_answered, checked_answer, error_of
from tandem.client.requests import (
    IngestRequests,
    NewItem,
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


class Client:
    """Calls one Tandem. One connection; close it or use it in a with statement."""

    def __init__(
        self, address: str, timeout_seconds: float = 10.0, access: Access | None = None
    ) -> None:
        """`address` is host:port of an orchestrator; nothing is sent before the first call.

        `access` is what it is shown; nothing, in plain text, unless given.
        """
        self._address = address
        self._access = access or Access()
        self._timeout_seconds = timeout_seconds
        self._channel = self._access.open_channel(address)
        self._stub = search_service_pb2_grpc.SearchServiceStub(self._channel)
        self._model_stub = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def search(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Returns the items that match a text or a picture, best first.

        `options` are those of SearchOptions. Finds images by text and texts by images unless
        `target_modality` says otherwise, and only items that the filter `where` holds for. A query
        may also be a StoredItem, a GivenEncoding, or several of all these as QueryParts.

        An answer may be less than was asked for, and then says so: `result.degradations`, with
        `coverage` and `rerank` for how much. `full_coverage_required` and `rerank_required` refuse
        such answers. What was written under the `consistency_tokens` of earlier outcomes and
        removals is seen, whichever client wrote it. Raises a TandemError by name.
        """
        request = search_request(query, index_id=index_id, **options)
        return search_result(self._call(self._stub.SearchItems, request))

    def search_page(
        self,
        cursor: bytes,
        *,
        index_id: str,
        return_n: int | None = None,
        content_included: bool = False,
    ) -> SearchResult:
        """Returns the items after those of the answer that had this `next_cursor`.

        As they stood in that search, whatever changed since; an item that was deleted has no
        content. As many as that search asked for, unless told. Raises CursorInvalid.
        """
        request = page_request(
            cursor, index_id=index_id, return_n=return_n, content_included=content_included
        )
        return search_result(self._call(self._stub.SearchItems, request))

    def search_stream(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> Iterator[SearchResult]:
        """Yields two answers: the bi-encoder's order at once, then what `search` returns."""
        search = search_request(query, index_id=index_id, **options)
        call = self._stub.StreamSearchItems(
            search_service_pb2.StreamSearchItemsRequest(search=search),
            timeout=self._timeout_seconds,
            metadata=self._metadata(),
        )
        try:
            is_answered = False
            for response in call:
                result = streamed_result(checked_answer(response, self._address))
                is_answered |= result.is_final
                yield result
            check_answered(is_answered, self._address)
        except grpc.RpcError as error:
            raise error_of(error, self._address) from error
        finally:
            # Where the caller has enough of the first answer, the second is not worked on.
            call.cancel()

    def search_batch(self, searches: Iterable[Search]) -> list[SearchResult | TandemError]:
        """Returns what became of each of at most 64 searches: its answer, or its own error.

        They are encoded and reranked in common batches. Raises where the call as a whole fails.
        """
        asked = list(searches)
        request = search_service_pb2.BatchSearchItemsRequest(
            searches=[search.request for search in asked]
        )
        response = self._call(self._stub.BatchSearchItems, request)
        return batch_results(response, [search.error for search in asked], self._address)

    def describe_model(self) -> ModelDescription:
        """Returns what the model behind the searches is, and what it takes."""
        request = model_service_pb2.DescribeModelRequest()
        return model_from_proto(self._call(self._model_stub.DescribeModel, request).model)

    def ingest(
        self,
        items: Iterable[NewItem],
        *,
        index_id: str,
        batch_item_count: int = 32,
        request_id: str = "",
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> Iterator[IngestOutcome]:
        """Stores items and yields each one's outcome, in their order.

        An item is (item id, content) or (item id, content, attributes).

        An item that is refused does not stop the others. Reads `items` only as fast as the server
        takes them. Raises a TandemError if the stream itself fails; what was yielded without an
        error until then is stored.

        A text with more tokens than the model reads is refused (TextTooLong), or, with
        TruncationPolicy.TRUNCATE, read from its beginning; each outcome's `text_use` says how far.

        With a `request_id` of your own, at most 50 bytes, the same call with the same items may be
        made again after a failure: what was stored is not stored a second time.
        """
        requests = IngestRequests(
            items, index_id, batch_item_count, request_id, truncation_policy, target=self._address
        )
        call = self._stub.IngestItems(iter(requests), metadata=self._metadata())
        try:
            for response in call:
                yield from requests.outcomes(checked_answer(response, self._address))
            requests.check_all_answered()
        except grpc.RpcError as error:
            raise (requests.error or error_of(error, self._address)) from error
        finally:
            # Where the caller stops before the end, or gRPC would go on reading `items`.
            call.cancel()

    def remove(self, item_ids: Iterable[str], *, index_id: str, request_id: str = "") -> Removal:
        """Deletes items by id; tells how many of them were there.

        Raises a TandemError whose message says what became of them where a shard fails. A call
        repeated with the same `request_id`, at most 64 bytes, is answered as the first time.
        """
        request = remove_request(item_ids, index_id, request_id)
        return removal(self._call(self._stub.RemoveItems, request))

    def remove_index(self, *, index_id: str) -> Removal:
        """Deletes all items of an index, and the index; of a large one a part, within seconds.

        Call it until `is_complete`. Raises IndexNotFound where there is none, and a TandemError
        whose message says how much is removed where a shard fails.
        """
        request = remove_index_request(index_id)
        return index_removal(self._call(self._stub.RemoveIndex, request))

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*request_metadata(), *self._access.metadata())

    def _call(self, method: Callable[..., _Response], request: Message) -> _Response:
        try:
            answer = method(request, timeout=self._timeout_seconds, metadata=self._metadata())
        except grpc.RpcError as error:
            raise error_of(error, self._address) from error
        return checked_answer(answer, self._address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
