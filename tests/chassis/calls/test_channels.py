"""calls.channels: one name for several replicas, and connections that grow old."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc

from tandem.chassis.calls.channels import SERVER_OPTIONS, open_channel
from tandem.chassis.health.health import Health
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceStub,
    add_SearchServiceServicer_to_server,
)
from tests.support.chassis.scripted_service import ScriptedSearch


@asynccontextmanager
async def replica(
    name: str,
    called: Counter[str],
    max_age_milliseconds: int | None = None,
    address: str = "127.0.0.1:0",
) -> AsyncIterator[str]:
    """Serves searches that count who answered, and yields its address."""

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        called[f"{name} {context.peer()}" if max_age_milliseconds else name] += 1
        await asyncio.sleep(0.005)
        return pb.SearchItemsResponse()

    options = dict(SERVER_OPTIONS)
    if max_age_milliseconds:
        options["grpc.max_connection_age_ms"] = max_age_milliseconds
    server = grpc.aio.server(options=list(options.items()))
    add_SearchServiceServicer_to_server(ScriptedSearch(search), server)
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def answering(health: Health, called: Counter[str]) -> AsyncIterator[int]:
    """Serves searches and this health, and yields the port."""

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        called["leaving"] += 1
        return pb.SearchItemsResponse()

    server = grpc.aio.server(options=SERVER_OPTIONS)
    health.register(server)
    add_SearchServiceServicer_to_server(ScriptedSearch(search), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def test_replicas_of_one_name_are_called_in_turn() -> None:
    called: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(replica(name, called)) for name in "abc"]
        channel = await stack.enter_async_context(open_channel(f"ipv4:{','.join(addresses)}"))
        stub = SearchServiceStub(channel)
        while len(called) < 3:  # all three are connected
            await stub.SearchItems(pb.SearchItemsRequest(), timeout=60, wait_for_ready=True)
        await asyncio.sleep(0.3)  # each change of who is there begins the turns anew
        called.clear()
        for _ in range(30):
            await stub.SearchItems(pb.SearchItemsRequest(), timeout=60)

    assert called == {"a": 10, "b": 10, "c": 10}


async def test_a_draining_replica_loses_no_call() -> None:
    called: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        staying = await stack.enter_async_context(replica("staying", called))
        async with AsyncExitStack() as leaving_stack:
            leaving = await leaving_stack.enter_async_context(replica("leaving", called))
            channel = await stack.enter_async_context(open_channel(f"ipv4:{staying},{leaving}"))
            stub = SearchServiceStub(channel)
            while len(called) < 2:
                await stub.SearchItems(pb.SearchItemsRequest(), timeout=60, wait_for_ready=True)
        called.clear()
        for _ in range(20):
            await stub.SearchItems(pb.SearchItemsRequest(), timeout=60)

    assert called == {"staying": 20}


async def test_a_draining_replica_gets_no_calls() -> None:
    """From its notice on, while it still answers: what reaches it as it closes would be lost."""
    called: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(replica(name, called)) for name in "ab"]
        health = Health("leaving", [])
        port = await stack.enter_async_context(answering(health, called))
        address = f"ipv4:{addresses[0]},{addresses[1]},127.0.0.1:{port}"
        channel = await stack.enter_async_context(open_channel(address))
        stub = SearchServiceStub(channel)
        while len(called) < 3:
            await stub.SearchItems(pb.SearchItemsRequest(), timeout=60, wait_for_ready=True)

        health.leave()
        await asyncio.sleep(0.2)
        called.clear()
        for _ in range(20):
            await stub.SearchItems(pb.SearchItemsRequest(), timeout=60)

    assert called["a"]
    assert called["b"]
    assert not called["leaving"]


async def test_connections_that_grow_old_fail_no_call() -> None:
    called: Counter[str] = Counter()
    async with (
        replica("old", called, max_age_milliseconds=100) as address,
        open_channel(address) as channel,
    ):
        stub = SearchServiceStub(channel)

        async def keep_calling() -> None:
            for _ in range(100):
                await stub.SearchItems(pb.SearchItemsRequest(), timeout=60)

        await asyncio.gather(*(keep_calling() for _ in range(4)))

    assert sum(called.values()) == 400
    assert len(called) > 2, "no connection was given up, so nothing was tried"


async def test_a_new_channel_starts_from_scratch() -> None:
    """By gRPC's default it would share the wait of another channel that was refused."""
    called: Counter[str] = Counter()

    async with AsyncExitStack() as stack:
        async with replica("first", called) as address:
            before = await stack.enter_async_context(open_channel(address))
            await SearchServiceStub(before).SearchItems(pb.SearchItemsRequest(), timeout=60)
        details = ""
        while "refused" not in details:  # at first it may be the connection that ends
            call = SearchServiceStub(before).SearchItems(pb.SearchItemsRequest(), timeout=60)
            details = await call.details()

        await stack.enter_async_context(replica("second", called, address=address))
        channel = await stack.enter_async_context(open_channel(address))
        answer = SearchServiceStub(channel).SearchItems(pb.SearchItemsRequest(), timeout=60)
        code = await answer.code()

    assert code == grpc.StatusCode.OK
