"""Serves what a test registers, behind the chassis's interceptors, on a free port of loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import grpc

from tandem.chassis.calls.channels import open_channel
from tandem.chassis.capacity.admission import DEFAULT_LIMITS, AdmissionLimits
from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import make_server


@asynccontextmanager
async def served(
    register: Callable[[grpc.aio.Server], None],
    name: str = "test",
    service_names: Sequence[str] = (),
    limits: AdmissionLimits = DEFAULT_LIMITS,
) -> AsyncIterator[grpc.aio.Channel]:
    """Yields a channel to a server with what `register` adds."""
    health = Health(name, list(service_names))
    server = await make_server(name, health, register, list(service_names), limits)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)
