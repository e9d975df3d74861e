"""Readiness: all downstream services at first, then those that searches need."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from structlog.testing import capture_logs

from tandem.chassis.calls.channels import open_channel
from tandem.chassis.health.health import LIVENESS
from tandem.errors import ServiceUnavailable
from tandem.remote.startup import Check, Dependencies, check_serving

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def service(
    status: health_pb2.HealthCheckResponse.ServingStatus,
) -> AsyncIterator[grpc.aio.Channel]:
    """Serves that health, and yields a channel."""
    servicer = health.HealthServicer()
    await servicer.set("", status)
    await servicer.set(LIVENESS, SERVING)
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


@dataclass
class Clock:
    """A clock that advances on request."""

    seconds: float = 0.0

    def __call__(self) -> float:
        """Returns now."""
        return self.seconds


def checks_of(
    encoder: grpc.aio.Channel,
    indexes: Sequence[grpc.aio.Channel],
    rerankers: Sequence[grpc.aio.Channel],
) -> Mapping[str, Check]:
    """Returns a check of each service, as the orchestrator makes them."""
    channels = {
        "encoder": encoder,
        **{f"index-{number}": each for number, each in enumerate(indexes)},
        **{f"rerank-{number}": each for number, each in enumerate(rerankers)},
    }
    return {name: partial(check_serving, name, each) for name, each in channels.items()}


@asynccontextmanager
async def behind(
    *,
    encoder: bool = True,
    indexes: Sequence[bool] = (True, True),
    rerankers: Sequence[bool] = (True, True),
) -> AsyncIterator[tuple[Dependencies, Clock]]:
    """Yields a start over services of which those serve that are said to."""
    clock = Clock()
    async with AsyncExitStack() as opened:

        async def channel(is_serving: bool) -> grpc.aio.Channel:
            if is_serving:
                return await opened.enter_async_context(service(SERVING))
            # Nothing listens on port 1.
            return await opened.enter_async_context(open_channel("127.0.0.1:1"))

        yield (
            Dependencies(
                checks_of(
                    await channel(encoder),
                    [await channel(each) for each in indexes],
                    [await channel(each) for each in rerankers],
                ),
                wait_seconds=10.0,
                clock=clock,
            ),
            clock,
        )


async def test_one_that_is_not_serving_yet_is_named() -> None:
    """So the log of a slow start says what it waits for."""
    async with service(SERVING) as serving, service(NOT_SERVING) as starting:
        checks = checks_of(serving, [starting], [serving])
        dependencies = Dependencies(checks, wait_seconds=10.0)

        with pytest.raises(ServiceUnavailable, match=r"index-0.*not serving yet"):
            await dependencies.check()


async def test_at_first_all_of_them_are_waited_for() -> None:
    """Otherwise the first searches after a fresh start would be partial for no reason."""
    async with behind(rerankers=(True, False)) as (dependencies, clock):
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match="rerank-1"):
                await dependencies.check()
            clock.seconds += 9.0


@pytest.mark.parametrize(
    ("serving", "named"),
    [
        ({"rerankers": (False, False)}, None),
        ({"indexes": (True, False), "rerankers": (True, False)}, None),
        ({"indexes": (False, False)}, "index-0"),
        ({"encoder": False}, "encoder"),
    ],
)
async def test_after_the_wait_the_services_that_searches_need_are_enough(
    serving: dict[str, Any], named: str | None
) -> None:
    """The encoder and one shard, without a cross-encoder; the log names what is missing.

    No share of the items is required, since a missing shard's count is unknown: with a minimum
    coverage over a half, one of two shards kept a restarted orchestrator out for good.
    """
    async with behind(**serving) as (dependencies, clock):
        with pytest.raises(ServiceUnavailable):
            await dependencies.check()
        clock.seconds += 10.0

        if named is None:
            with capture_logs() as logs:
                await dependencies.check()
            [told] = [line for line in logs if line["event"] == "serving without"]
            missing = {
                f"{kind}-{number}"
                for kind, each in (("index", "indexes"), ("rerank", "rerankers"))
                for number, is_serving in enumerate(serving.get(each, ()))
                if not is_serving
            }
            assert set(told["missing"]) == missing
        else:
            with pytest.raises(ServiceUnavailable, match=named):
                await dependencies.check()
