"""The SDK for asyncio programs: the same calls as Client, awaited."""

import asyncio
from collections.abc import AsyncIterator, Iterable
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


class AsyncClient:
    """Calls one Tandem from an event loop. Close it or use it in an async with statement."""

    def __init__(self, address: str, timeout_seconds: float = 10.0) -> None:
        """As Client. Must be made where the event loop runs."""
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = search_service_pb2_grpc.SearchServiceStub(self._channel)

    async def search(
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
        """As Client.search."""
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
            response = await self._stub.SearchItems(
                request, timeout=self._timeout_seconds, metadata=request_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self._address) from error
        return search_result(response)

    async def ingest(
        self,
        items: Iterable[NewItem],
        *,
        index_id: str,
        batch_item_count: int = 32,
        request_id: str = "",
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> AsyncIterator[IngestOutcome]:
        """As Client.ingest."""
        requests = IngestRequests(items, index_id, batch_item_count, request_id, truncation_policy)
        call = self._stub.IngestItems(iter(requests), metadata=request_metadata())
        try:
            async for response in call:
                for outcome in ingest_outcomes(response):
                    yield outcome
        except grpc.aio.AioRpcError as error:
            raise (requests.error or error_of(error, self._address)) from error
        except asyncio.CancelledError as error:
            # How grpc.aio tells that reading the batches raised, unless this task was cancelled.
            if requests.error is None:
                raise
            raise requests.error from error
        finally:
            # Where the caller stops before the end, or gRPC would go on reading `items`.
            call.cancel()

    async def remove(
        self, item_ids: Iterable[str], *, index_id: str, request_id: str = ""
    ) -> Removal:
        """As Client.remove."""
        request = remove_request(item_ids, index_id, request_id)
        try:
            response = await self._stub.RemoveItems(
                request, timeout=self._timeout_seconds, metadata=request_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self._address) from error
        return removal(response)

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
