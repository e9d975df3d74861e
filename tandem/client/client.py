"""The SDK for programs without an event loop."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

import grpc

from tandem.client.requests import (
    CHANNEL_OPTIONS,
    IngestRequests,
    NewItem,
    Query,
    error_of,
    remove_request,
    request_metadata,
    search_request,
)
from tandem.client.results import (
    IngestOutcome,
    Removal,
    SearchResult,
    ingest_outcomes,
    removal,
    search_result,
)
from tandem.content import Modality, TruncationPolicy
from tandem.filters import Filter
from tandem.v1 import search_service_pb2_grpc


class Client:
    """Calls one Tandem. One connection; close it or use it in a with statement."""

    def __init__(self, address: str, timeout_seconds: float = 10.0) -> None:
        """`address` is host:port of an orchestrator; nothing is sent before the first call."""
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = search_service_pb2_grpc.SearchServiceStub(self._channel)

    def search(
        self,
        query: Query,
        *,
        index_id: str,
        target_modality: Modality | None = None,
        retrieve_k: int | None = None,
        rerank_k: int | None = None,
        return_n: int | None = None,
        rerank_disabled: bool = False,
        content_included: bool = False,
        where: Filter | None = None,
        consistency_tokens: Iterable[str] = (),
        full_coverage_required: bool = False,
    ) -> SearchResult:
        """Returns the items that match a text or a picture, best first.

        Finds images by text and texts by image unless `target_modality` says otherwise, and only
        items that the filter `where` holds for. Where a shard does not answer, the result is out
        of the others and its `coverage` says so; with `full_coverage_required` that is
        ShardsMissing. What was written under the `consistency_tokens` of earlier outcomes and
        removals is seen, whichever client wrote it. Raises a TandemError by name.
        """
        request = search_request(
            query,
            index_id=index_id,
            target_modality=target_modality,
            retrieve_k=retrieve_k,
            rerank_k=rerank_k,
            return_n=return_n,
            rerank_disabled=rerank_disabled,
            content_included=content_included,
            where=where,
            consistency_tokens=consistency_tokens,
            full_coverage_required=full_coverage_required,
        )
        try:
            response = self._stub.SearchItems(
                request, timeout=self._timeout_seconds, metadata=request_metadata()
            )
        except grpc.RpcError as error:
            raise error_of(error, self._address) from error
        return search_result(response)

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
        requests = IngestRequests(items, index_id, batch_item_count, request_id, truncation_policy)
        call = self._stub.IngestItems(iter(requests), metadata=request_metadata())
        try:
            for response in call:
                yield from ingest_outcomes(response)
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
        try:
            response = self._stub.RemoveItems(
                request, timeout=self._timeout_seconds, metadata=request_metadata()
            )
        except grpc.RpcError as error:
            raise error_of(error, self._address) from error
        return removal(response)

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
