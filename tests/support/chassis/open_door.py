"""A door with the whole chassis behind it, and callers that send bytes or nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tandem.chassis.access.guard import Guard
from tandem.chassis.calls.channels import SERVER_OPTIONS
from tandem.chassis.calls.status import REASON_KEY
from tandem.chassis.capacity.admission import DEFAULT_LIMITS, AdmissionLimits
from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import make_server
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server
from tests.support.chassis.scripted_service import (
    SEARCH_SERVICE,
    ScriptedSearch,
    Search,
    nothing_found,
)

SEARCH = f"/{SEARCH_SERVICE}/SearchItems"
STREAM_SEARCH = f"/{SEARCH_SERVICE}/StreamSearchItems"
BATCH = f"/{SEARCH_SERVICE}/BatchSearchItems"
INGEST = f"/{SEARCH_SERVICE}/IngestItems"
WATCH = "/grpc.health.v1.Health/Watch"
CHECK = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


class Batches(ScriptedSearch):
    """Answers batches too, and streamed searches by three searches."""

    async def StreamSearchItems(
        self, request: pb.StreamSearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamSearchItemsResponse]:
        """Answers with each search."""
        for _ in range(3):
            yield pb.StreamSearchItemsResponse(answer=await self._search(request.search, context))

    async def BatchSearchItems(
        self, request: pb.BatchSearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.BatchSearchItemsResponse:
        """Answers none of its searches."""
        return pb.BatchSearchItemsResponse()


@asynccontextmanager
async def address(
    guard: Guard | None = None,
    limits: AdmissionLimits = DEFAULT_LIMITS,
    search: Search = nothing_found,
    options: Sequence[tuple[str, Any]] = SERVER_OPTIONS,
) -> AsyncIterator[str]:
    """Serves searches behind the whole chassis, and yields where."""
    server = await make_server(
        "door",
        Health("door", [SEARCH_SERVICE]),
        lambda server: add_SearchServiceServicer_to_server(Batches(search), server),
        [SEARCH_SERVICE],
        limits,
        options,
        guard,
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def connection(to: str) -> grpc.aio.Channel:
    """Returns a channel with a connection of its own."""
    return grpc.aio.insecure_channel(
        to,
        options=[
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
        ],
    )


def raw(channel: grpc.aio.Channel, path: str) -> grpc.aio.StreamStreamMultiCallable:
    """Returns a method that sends bytes, or nothing: on the wire its arity does not show."""
    return channel.stream_stream(path, request_serializer=bytes, response_deserializer=bytes)


async def refusal(call: Any) -> str:
    """Returns the reason of the call's refusal, or else its code; never waits for long."""
    code = await asyncio.wait_for(call.code(), 60)
    return str(dict(await call.trailing_metadata()).get(REASON_KEY, code.name))
