"""Proxies that are set are not asked the way to this machine, nor between services."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.chassis.calls.channels import open_channel
from tandem.client import Access
from tandem.triton.client import _CHANNEL_ARGUMENTS

NOBODY = "http://127.0.0.1:9"
VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
SERVING = health_pb2.HealthCheckResponse.SERVING


class _Health(health_pb2_grpc.HealthServicer):
    def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:
        return health_pb2.HealthCheckResponse(status=SERVING)


@pytest.fixture(params=VARIABLES)
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server on loopback, while a proxy is named that does not answer."""
    for variable in (*VARIABLES, "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(request.param, NOBODY)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        health_pb2_grpc.add_HealthServicer_to_server(_Health(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def status(channel: grpc.Channel) -> int:
    """Returns what the server says; ends the channel."""
    with channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status)


def test_a_client_reaches_loopback(address: str) -> None:
    """Which any other channel does not: the control."""
    with pytest.raises(grpc.RpcError):
        status(grpc.insecure_channel(address))

    assert status(Access().open_channel(address, options=())) == SERVING
    assert status(grpc.insecure_channel(address, options=_CHANNEL_ARGUMENTS)) == SERVING


async def test_services_reach_one_another(address: str) -> None:
    """Wherever they are; and so do clients with an event loop."""
    for channel in (open_channel(address), Access().open_aio_channel(address)):
        async with channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            answer = await asyncio.wait_for(check(health_pb2.HealthCheckRequest()), 60)
            assert answer.status == SERVING


def test_a_client_reaches_another_machine_through_the_proxy(address: str) -> None:
    """As every program of this machine does: there may be no other way."""
    with pytest.raises(grpc.RpcError) as told:
        status(Access().open_channel("search.example.org:7400", options=()))

    assert "127.0.0.1:9" in str(told.value.details())
