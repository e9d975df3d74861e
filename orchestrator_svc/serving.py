"""Serves searches over the channels of the downstream services."""

from collections.abc import Awaitable, Callable, Sequence

import grpc

from orchestrator_svc.assembly import (
    SERVICE_NAMES,
    Stages,
    connected_stages,
    make_orchestrator,
    make_servicers,
)
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.server import AttachedServer, serve
from tandem.chassis.serve.service import ServiceRoom
from tandem.chassis.tls import Identity
from tandem.remote.startup import Dependencies

MakeStages = Callable[
    [
        OrchestratorSettings,
        grpc.aio.Channel,
        Sequence[grpc.aio.Channel],
        Sequence[grpc.aio.Channel],
    ],
    Stages,
]


async def serve_searches(
    settings: OrchestratorSettings,
    identity: Identity | None,
    connect: Callable[[str, str], grpc.aio.Channel],
    begin: Callable[[], Awaitable[None]] | None = None,
    attached: AttachedServer | None = None,
    *,
    make_stages: MakeStages = connected_stages,
) -> None:
    """Serves until a signal stops it.

    `connect` returns the channel to a service by its name, such as "rerank-1", and its address.
    `begin` is awaited once the process is prepared, before the services are called. `attached`
    calls the search service directly. `make_stages` returns the stages behind these channels.
    """
    encoder_channel = connect("encoder", settings.encoder_address)
    index_channels = [
        connect(f"index-{number}", address)
        for number, address in enumerate(settings.index_addresses)
    ]
    rerank_channels = [
        connect(f"rerank-{number}", address)
        for number, address in enumerate(settings.rerank_addresses)
    ]
    stages = make_stages(settings, encoder_channel, index_channels, rerank_channels)
    servicers = make_servicers(settings, make_orchestrator(settings, stages))
    dependencies = Dependencies(
        encoder_channel,
        index_channels,
        rerank_channels,
        wait_seconds=settings.start_wait_seconds,
    )

    async def warm() -> None:
        if begin is not None:
            await begin()
        await dependencies.check()

    async def close() -> None:
        for channel in (encoder_channel, *index_channels, *rerank_channels):
            await channel.close()

    await serve(
        settings,
        ServiceRoom(
            name="orchestrator",
            register=servicers.register,
            service_names=SERVICE_NAMES,
            warm=warm,
            close=close,
        ),
        identity=identity,
        guard=load_guard_or_exit(identity),
        attached=attached,
    )
