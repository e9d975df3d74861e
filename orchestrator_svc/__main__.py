"""Wires and runs the orchestrator: python -m orchestrator_svc."""

import asyncio

import grpc

from orchestrator_svc.assembly import make_servicers
from orchestrator_svc.services.startup import Dependencies
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.channels import open_channel
from tandem.chassis.guard import load_guard_or_exit
from tandem.chassis.server import serve
from tandem.chassis.settings import load_or_exit
from tandem.chassis.tls import load_identity_or_exit
from tandem.v1 import content_service_pb2, model_service_pb2, search_service_pb2
from tandem.v1.content_service_pb2_grpc import add_ContentServiceServicer_to_server
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server


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

    def register(server: grpc.aio.Server) -> None:
        add_SearchServiceServicer_to_server(servicers.search, server)
        add_ContentServiceServicer_to_server(servicers.content, server)
        add_ModelServiceServicer_to_server(servicers.model, server)

    async def close() -> None:
        for channel in (encoder_channel, *index_channels, *rerank_channels):
            await channel.close()

    await serve(
        settings,
        name="orchestrator",
        register=register,
        service_names=[
            search_service_pb2.DESCRIPTOR.services_by_name["SearchService"].full_name,
            content_service_pb2.DESCRIPTOR.services_by_name["ContentService"].full_name,
            model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
        ],
        warm=dependencies.check,
        close=close,
        identity=identity,
        guard=load_guard_or_exit(identity),
    )


if __name__ == "__main__":
    asyncio.run(main(load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")))
