"""Whether the services behind say that they are serving."""

from collections.abc import Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from orchestrator_svc.fan_out import fan_out
from tandem.chassis.channels import call
from tandem.errors import ServiceUnavailable

_TIMEOUT_SECONDS = 2.0


async def check_dependencies(channels: Mapping[str, grpc.aio.Channel]) -> None:
    """Returns once every service of the map has answered SERVING; raises ServiceUnavailable."""
    await fan_out(*(_check(name, channel) for name, channel in channels.items()))


async def _check(name: str, channel: grpc.aio.Channel) -> None:
    response: health_pb2.HealthCheckResponse = await call(
        health_pb2_grpc.HealthStub(channel).Check,
        health_pb2.HealthCheckRequest(),
        service=name,
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    if response.status != health_pb2.HealthCheckResponse.SERVING:
        raise ServiceUnavailable(service=name, why="it is not serving yet")
