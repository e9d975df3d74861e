"""Readiness: the orchestrator starts once every service behind says that it serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from orchestrator_svc.dependencies import check_dependencies
from tandem.chassis.channels import open_channel
from tandem.errors import ServiceUnavailable

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def service(
    status: health_pb2.HealthCheckResponse.ServingStatus,
) -> AsyncIterator[grpc.aio.Channel]:
    """Serves that health, and yields a channel."""
    servicer = health.HealthServicer()
    await servicer.set("", status)
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


async def test_all_serving_is_ready() -> None:
    """Nothing is raised."""
    async with service(SERVING) as encoder, service(SERVING) as index:
        await check_dependencies({"encoder": encoder, "index-0": index})


async def test_one_that_is_not_serving_yet_is_named() -> None:
    """So the log of a start that takes long says what it waits for."""
    async with service(SERVING) as encoder, service(NOT_SERVING) as index:
        with pytest.raises(ServiceUnavailable, match="index-0"):
            await check_dependencies({"encoder": encoder, "index-0": index})


async def test_one_that_is_not_there_is_named() -> None:
    """Nobody listens on port 1."""
    async with service(SERVING) as encoder, open_channel("127.0.0.1:1") as gone:
        with pytest.raises(ServiceUnavailable, match="rerank-1"):
            await check_dependencies({"encoder": encoder, "rerank-1": gone})
