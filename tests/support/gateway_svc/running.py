"""A gateway in this process, before a SearchService that does what a test says."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from gateway_svc.app import GatewayApp
from gateway_svc.connection import ConnectionLimits
from gateway_svc.http_server import HttpServer
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import Upstream
from tandem.chassis.access.guard import Guard
from tandem.chassis.calls.channels import open_channel
from tandem.chassis.serve.direct_channel import DirectChannel
from tandem.chassis.telemetry.metrics import RPC_INFLIGHT
from tandem.chassis.tls import Identity
from tandem.errors import IndexNotFound
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import (
    IngestBatch,
    Remove,
    Search,
    ToldService,
    all_removed,
    all_stored,
    found_nothing,
    search_server,
)

SHAPES = ("apart", "attached")
"""Calls the orchestrator over a connection, or directly in its process."""

chosen_shape = SHAPES[0]
"""The shape of the gateways that a test runs; the fixture `each_shape` chooses it."""

SEARCH = "/tandem.v1.SearchService/SearchItems"
STREAM = "/tandem.v1.SearchService/StreamSearchItems"


@dataclass(frozen=True)
class Gateway:
    """A running gateway, a client of it, and what stands behind it."""

    port: int
    client: httpx2.AsyncClient
    service: ToldService

    async def until_no_request(self) -> None:
        """Waits until no request is in flight in this process."""
        inflight = RPC_INFLIGHT.labels("gateway")
        async with asyncio.timeout(60.0):
            while inflight._value.get():  # noqa: ASYNC110 (a gauge)
                await asyncio.sleep(0.01)

    async def search(self, body: Any = None, **headers: str) -> httpx2.Response:
        """Calls SearchItems with JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(SEARCH, json=body or {}, headers=named)

    async def send(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens a connection of its own and sends bytes as they are."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def answer_to(self, data: bytes) -> bytes:
        """Sends bytes, and returns one whole answer; the connection may stay open."""
        reader, writer = await self.send(data)
        try:
            async with asyncio.timeout(60.0):
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                lengths = [each[15:] for each in lines if each.startswith(b"content-length:")]
                # h11's own refusals end with the connection.
                rest = reader.readexactly(int(lengths[0])) if lengths else reader.read()
                return head + await rest
        finally:
            writer.close()

    async def exchange(self, data: bytes, seconds: float = 20.0) -> bytes:
        """Sends bytes, and returns all that comes until the gateway closes the connection."""
        reader, writer = await self.send(data)
        try:
            async with asyncio.timeout(seconds):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def gateway(
    search: Search = found_nothing,
    ingest: IngestBatch = all_stored,
    remove: Remove = all_removed,
    *,
    guard: Guard | None = None,
    identity: Identity | None = None,
    limits: ConnectionLimits | None = None,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """Runs it on a free port of the loopback; `limits`, which may change, replace the settings'."""
    is_attached = chosen_shape == "attached"
    scheme = "http" if identity is None else "https"
    async with (
        search_server(search, ingest, remove) as (address, service),
        gateway_before(
            address,
            guard=guard,
            identity=identity,
            limits=limits,
            attached_to=service.direct_channel if is_attached else None,
            **settings,
        ) as port,
        httpx2.AsyncClient(
            base_url=f"{scheme}://127.0.0.1:{port}", trust_env=False, timeout=30.0, verify=False
        ) as client,
    ):
        yield Gateway(port, client, service)


@asynccontextmanager
async def gateway_before(
    address: str,
    *,
    guard: Guard | None = None,
    identity: Identity | None = None,
    limits: ConnectionLimits | None = None,
    attached_to: DirectChannel | None = None,
    **settings: Any,
) -> AsyncIterator[int]:
    """Runs it before the SearchService at `address`, or attached to it; yields its port."""
    chosen = GatewaySettings(address="127.0.0.1:0", orchestrator_address=address, grace_seconds=1.0)
    chosen = dataclasses.replace(chosen, **settings)
    channel = attached_to or open_channel(address)
    app = GatewayApp(Upstream(channel), guard or Guard(), chosen)
    app.limits = limits or app.limits
    server = HttpServer(app, chosen, identity)
    serving = asyncio.create_task(server.serve())
    try:
        await server.listening.wait()
        yield server.port
    finally:
        server.should_exit = True
        await serving
        await channel.close()


async def found_one(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """Finds an item named after the query."""
    item = pb.RankedItem(item_id=request.query.text, similarity=0.5, retrieve_rank=1)
    return pb.SearchItemsResponse(items=[item])


async def no_index(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """Refuses every search."""
    raise IndexNotFound(index_id=request.index_id or "nowhere")
