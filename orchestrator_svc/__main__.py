"""Wires and runs the orchestrator: python -m orchestrator_svc."""

import asyncio

import tandem.chassis.plain_structlog  # noqa: F401
from orchestrator_svc.assembly import SERVICE_NAMES, make_servicers
from orchestrator_svc.services.startup import Dependencies
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.channels import open_channel
from tandem.chassis.guard import load_guard_or_exit
from tandem.chassis.server import serve
from tandem.chassis.settings import load_or_exit
from tandem.chassis.tls import load_identity_or_exit


async def main(settings: OrchestratorSettings) -> None:
    """Serves until a signal stops it."""
    identity = load_identity_or_exit()
    encoder_channel = open_channel(settings.encoder_address, identity)
    index_channels = [open_channel(address, identity) for address in settings.index_addresses]
    rerank_channels = [open_channel(address, identity) for address in settings.rerank_addresses]
    servicers = make_servicers(settings, encoder_channel, index_channels, rerank_channels)
    dependencies = Dependencies(
        encoder_channel,
        index_channels,
        rerank_channels,
        wait_seconds=settings.start_wait_seconds,
    )

    async def close() -> None:
        for channel in (encoder_channel, *index_channels, *rerank_channels):
            await channel.close()

    await serve(
        settings,
        name="orchestrator",
        register=servicers.register,
        service_names=SERVICE_NAMES,
        warm=dependencies.check,
        close=close,
        identity=identity,
        guard=load_guard_or_exit(identity),
    )


if __name__ == "__main__":
    asyncio.run(main(load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")))
