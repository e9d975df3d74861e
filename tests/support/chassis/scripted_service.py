"""A SearchService that does what a test says, behind the real chassis on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import grpc

from tandem.chassis.capacity.admission import DEFAULT_LIMITS, AdmissionLimits
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceServicer,
    add_SearchServiceServicer_to_server,
)
from tests.support.chassis.served import served

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

    async def StreamSearchItems(
        self, request: pb.StreamSearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamSearchItemsResponse]:
        """Answers twice."""
        for _ in range(2):
            answer = await self._search(request.search, context)
            yield pb.StreamSearchItemsResponse(answer=answer)

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
    search: Search, *, name: str = "scripted", limits: AdmissionLimits = DEFAULT_LIMITS
) -> AsyncIterator[grpc.aio.Channel]:
    """Serves `search` on a free port of the loopback and yields a channel to it."""
    register = partial(add_SearchServiceServicer_to_server, ScriptedSearch(search))
    async with served(register, name, [SEARCH_SERVICE], limits) as channel:
        yield channel


async def nothing_found(
    request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """The search that always succeeds."""
    return pb.SearchItemsResponse()


async def hang(
    request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
) -> pb.SearchItemsResponse:
    """The search that never ends."""
    await asyncio.sleep(60)
    return pb.SearchItemsResponse()


def sample(name: str, **labels: str) -> float:
    """Returns a metric's value; 0 where nothing was counted yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def until(condition: Callable[[], bool], timeout_seconds: float = 60.0) -> None:
    """Waits for what other tasks bring about."""
    async with asyncio.timeout(timeout_seconds):
        while not condition():  # noqa: ASYNC110 (a metric has no event to wait for)
            await asyncio.sleep(0.005)
