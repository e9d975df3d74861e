"""Health as grpc.health.v1 has it, for many who watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.health.health_servicer import HealthServicer

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
GRACE_SECONDS = 240.0


class Served:
    """A server with a servicer, and a stub of it."""

    def __init__(self) -> None:
        self.servicer = HealthServicer()
        self.server = grpc.aio.server()
        health_pb2_grpc.add_HealthServicer_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = health_pb2_grpc.HealthStub(self.channel)

    def watch(self, name: str) -> grpc.aio.UnaryStreamCall:
        """Returns a watch of the name."""
        return self.stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Starts the servicer without any state of its services."""
    made = Served()
    await made.server.start()
    yield made
    await made.channel.close()
    await made.server.stop(None)


async def status(watch: grpc.aio.UnaryStreamCall) -> int:
    """Returns what the watch says next."""
    answer = await asyncio.wait_for(watch.read(), 60)
    said: int = answer.status
    return said


async def test_a_name_of_any_length_is_not_found(served: Served) -> None:
    """Repeated whole, the name would not fit the trailer and would become RESOURCE_EXHAUSTED."""
    request = health_pb2.HealthCheckRequest(service="é" * 100_000)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.stub.Check(request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "é" in (caught.value.details() or "")


async def test_a_name_reports_the_status_that_was_set(served: Served) -> None:
    request = health_pb2.HealthCheckRequest(service="a")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.stub.Check(request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    served.servicer.set_statuses({"a": SERVING})
    assert (await served.stub.Check(request)).status == SERVING

    served.servicer.set_all(NOT_SERVING)
    assert (await served.stub.Check(request)).status == NOT_SERVING


async def test_each_watcher_gets_each_change_when_others_leave(served: Served) -> None:
    """One of three goes away; the library's own servicer then tells the others nothing more."""
    watches = [served.watch("a") for _ in range(3)]
    assert [await status(watch) for watch in watches] == [UNKNOWN] * 3

    watches.pop(0).cancel()
    await asyncio.sleep(0.1)
    served.servicer.set_statuses({"a": SERVING})
    assert [await status(watch) for watch in watches] == [SERVING] * 2
    served.servicer.set_statuses({"a": SERVING, "b": NOT_SERVING})  # nothing new of this name
    served.servicer.set_statuses({"a": NOT_SERVING})
    assert [await status(watch) for watch in watches] == [NOT_SERVING] * 2


async def test_ended_watches_do_not_hold_the_server(served: Served) -> None:
    """Else its stop takes the whole grace period."""
    served.servicer.set_statuses({"a": SERVING})
    watch = served.watch("a")
    assert await status(watch) == SERVING

    served.servicer.end_watches()
    async with asyncio.timeout(GRACE_SECONDS / 2):
        await served.server.stop(GRACE_SECONDS)
