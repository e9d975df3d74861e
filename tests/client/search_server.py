"""A SearchService that does what a test says, behind the real chassis, for clients to call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc

from tandem.chassis.health import Health
from tandem.chassis.server import make_server
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceServicer,
    add_SearchServiceServicer_to_server,
)

Search = Callable[[pb.SearchItemsRequest], Awaitable[pb.SearchItemsResponse]]
IngestBatch = Callable[[pb.IngestItemsRequest], Awaitable[pb.IngestItemsResponse]]
Remove = Callable[[pb.RemoveItemsRequest], Awaitable[pb.RemoveItemsResponse]]


async def found_nothing(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """The search that always succeeds."""
    return pb.SearchItemsResponse()


async def all_stored(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
    """The batch that always succeeds."""
    return pb.IngestItemsResponse(
        results=[pb.IngestResult(item_id=item.item_id) for item in request.items]
    )


async def all_removed(request: pb.RemoveItemsRequest) -> pb.RemoveItemsResponse:
    """The removal that finds every item."""
    return pb.RemoveItemsResponse(removed_count=len(request.item_ids))


class ToldService(SearchServiceServicer):
    """Answers as it was told, and notes what it was sent."""

    def __init__(self, search: Search, ingest: IngestBatch, remove: Remove) -> None:
        self._search, self._ingest, self._remove = search, ingest, remove
        self.requests: list[object] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.stream_ended = asyncio.Event()
        """Set when an ingest stream is over, whichever way."""

    async def SearchItems(
        self, request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        """Answers by `search`."""
        self._note(request, context)
        return await self._search(request)

    async def IngestItems(
        self,
        request_iterator: AsyncIterator[pb.IngestItemsRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.IngestItemsResponse]:
        """Answers each batch by `ingest` before it reads the next."""
        try:
            async for request in request_iterator:
                self._note(request, context)
                yield await self._ingest(request)
        finally:
            self.stream_ended.set()

    async def RemoveItems(
        self, request: pb.RemoveItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.RemoveItemsResponse:
        """Answers by `remove`."""
        self._note(request, context)
        return await self._remove(request)

    def _note(self, request: object, context: grpc.aio.ServicerContext) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))


@asynccontextmanager
async def search_server(
    search: Search = found_nothing,
    ingest: IngestBatch = all_stored,
    remove: Remove = all_removed,
) -> AsyncIterator[tuple[str, ToldService]]:
    """Serves on a free port of the loopback; yields the address and the service."""
    service = ToldService(search, ingest, remove)
    server = await make_server(
        "told",
        Health("told", []),
        lambda server: add_SearchServiceServicer_to_server(service, server),
        [],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", service
    finally:
        await server.stop(None)
