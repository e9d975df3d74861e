"""Puts the orchestrator together over the stages of a search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from orchestrator_svc.call_deadline import CallDeadline
from orchestrator_svc.content_servicer import ContentServicer
from orchestrator_svc.generation_servicer import GenerationServicer
from orchestrator_svc.model_servicer import SearchModelServicer
from orchestrator_svc.servicer import SearchServicer
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.calls.channels import open_channel
from tandem.chassis.tls import Identity
from tandem.remote.encoder import RemoteEncoder
from tandem.remote.reranker import RemoteReranker
from tandem.remote.shard import RemoteShard
from tandem.remote.startup import Check, check_serving
from tandem.search.assembly import NEXT, Stages, guarded_stages
from tandem.search.contents.content_budget import ContentBudget
from tandem.search.orchestrator import Orchestrator
from tandem.v1 import (
    content_service_pb2,
    generation_service_pb2,
    model_service_pb2,
    search_service_pb2,
)
from tandem.v1.content_service_pb2_grpc import add_ContentServiceServicer_to_server
from tandem.v1.generation_service_pb2_grpc import add_GenerationServiceServicer_to_server
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server

SERVICE_NAMES = (
    search_service_pb2.DESCRIPTOR.services_by_name["SearchService"].full_name,
    content_service_pb2.DESCRIPTOR.services_by_name["ContentService"].full_name,
    generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
    model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
)


@dataclass(frozen=True, slots=True)
class Servicers:
    """Holds what the orchestrator serves."""

    search: SearchServicer
    model: SearchModelServicer
    content: ContentServicer
    generation: GenerationServicer

    def register(self, server: grpc.aio.Server) -> None:
        """Adds them to a server, which serves SERVICE_NAMES then."""
        add_SearchServiceServicer_to_server(self.search, server)
        add_ContentServiceServicer_to_server(self.content, server)
        add_ModelServiceServicer_to_server(self.model, server)
        add_GenerationServiceServicer_to_server(self.generation, server)

    def switch(self, orchestrator: Orchestrator) -> None:
        """Has new calls answered by the orchestrator; calls in flight end on the one before."""
        for servicer in (self.search, self.model, self.content, self.generation):
            servicer.orchestrator = orchestrator


@dataclass(frozen=True, slots=True)
class Hosted:
    """Holds a stage that this process has itself."""

    stage: Any
    check: Check


@dataclass(frozen=True, slots=True)
class Downstream:
    """Holds the stages that searches call, and how to tell whether they can."""

    stages: Stages
    checks: Mapping[str, Check]
    """By service: "encoder", "index-0", "rerank-0" and on. Nothing waits for the next model's."""
    channels: Sequence[grpc.aio.Channel]
    next_stages: Stages | None = None
    """Those of the next model over the same shards, if its services are named."""

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()


def downstream(
    settings: OrchestratorSettings, identity: Identity | None, hosted: Mapping[str, Hosted]
) -> Downstream:
    """Returns the stages of the settings: the hosted ones, and the others behind channels."""
    checks: dict[str, Check] = {}
    channels: list[grpc.aio.Channel] = []

    def opened(address: str) -> grpc.aio.Channel:
        channels.append(open_channel(address, identity))
        return channels[-1]

    def stage(name: str, address: str, remote: Callable[[grpc.aio.Channel], Any]) -> Any:  # noqa: ANN401
        if name in hosted:
            checks[name] = hosted[name].check
            return hosted[name].stage
        channel = opened(address)
        checks[name] = partial(check_serving, name, channel)
        return remote(channel)

    version = settings.shard_map_version
    stages = guarded_stages(
        settings,
        stage("encoder", settings.encoder_address, RemoteEncoder),
        [
            stage(f"index-{n}", address, partial(RemoteShard, number=n, shard_map_version=version))
            for n, address in enumerate(settings.index_addresses)
        ],
        [
            stage(f"rerank-{n}", address, partial(RemoteReranker, number=n))
            for n, address in enumerate(settings.rerank_addresses)
        ],
    )
    if not settings.next_encoder_address:
        return Downstream(stages, checks, channels)
    encoder = RemoteEncoder(opened(settings.next_encoder_address), f"{NEXT}encoder")
    rerankers = [
        RemoteReranker(opened(address), number, NEXT)
        for number, address in enumerate(settings.next_rerank_addresses)
    ]
    following = guarded_stages(settings, encoder, (), rerankers, stages)
    return Downstream(stages, checks, channels, following)


def make_servicers(settings: OrchestratorSettings, orchestrator: Orchestrator) -> Servicers:
    """Returns the servicers over the orchestrator."""
    deadline = CallDeadline(settings.default_timeout_seconds, settings.max_timeout_seconds)
    content_budget = ContentBudget()
    return Servicers(
        SearchServicer(orchestrator, deadline, content_budget),
        SearchModelServicer(orchestrator, deadline),
        ContentServicer(orchestrator, deadline, content_budget),
        GenerationServicer(orchestrator, deadline),
    )
