"""A SearchService that does what a test says, behind the real chassis on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc

from tandem.chassis.channels import open_channel
from tandem.chassis.health import Health
from tandem.chassis.server import make_server
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceServicer,
    add_SearchServiceServicer_to_server,
)

SEARCH_SERVICE = "tandem.v1.SearchService"

Search = Callable[
    [pb.SearchItemsRequest, grpc.aio.ServicerContext], Awaitable[pb.SearchItemsResponse]
]


class ScriptedSearch(SearchServiceServicer):
    """Answers searches by `search`, and each ingested batch with its items' ids.

    An ingested batch goes through `search` first, so that a stream fails as a search does.
    """

    def __init__(self, search: Search) -> None:
        self._search = search

    async def SearchItems(
        self, request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        """Answers as the test says."""
        return await self._search(request, context)

    async def IngestItems(
        self,
        requests: AsyncIterator[pb.IngestItemsRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.IngestItemsResponse]:
        """Answers batch by batch."""
        async for request in requests:
            await self._search(pb.SearchItemsRequest(index_id=request.index_id), context)
            results = [pb.IngestResult(item_id=item.item_id) for item in request.items]
            yield pb.IngestItemsResponse(results=results)


@asynccontextmanager
async def scripted_service(
    search: Search, *, name: str = "scripted", max_inflight_count: int = 8
) -> AsyncIterator[grpc.aio.Channel]:
    """Serves `search` on a free port of the loopback and yields a channel to it."""
    health = Health(name, [SEARCH_SERVICE])
    server = await make_server(
        name,
        health,
        lambda server: add_SearchServiceServicer_to_server(ScriptedSearch(search), server),
        [SEARCH_SERVICE],
        max_inflight_count,
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


async def nothing_found(
    request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """The search that always succeeds."""
    return pb.SearchItemsResponse()
