"""Wires and runs the orchestrator: python -m orchestrator_svc."""

import asyncio

import grpc

from orchestrator_svc.model_servicer import SearchModelServicer
from orchestrator_svc.rerank.pace import ChunkRule
from orchestrator_svc.search.batch_search import BatchSearcher
from orchestrator_svc.search.search import Searcher
from orchestrator_svc.search.time_budget import TimeShares
from orchestrator_svc.servicer import SearchServicer
from orchestrator_svc.services.breaker import BreakerRule
from orchestrator_svc.services.encoder_client import EncoderClient
from orchestrator_svc.services.retry_budget import RetryBudget
from orchestrator_svc.services.shard_client import ShardClient
from orchestrator_svc.services.startup import Dependencies
from orchestrator_svc.settings import OrchestratorSettings
from orchestrator_svc.shard_map import ShardMap
from orchestrator_svc.writes.ingest import Ingester
from orchestrator_svc.writes.removal import Remover
from tandem.chassis.channels import open_channel
from tandem.chassis.guard import load_guard_or_exit
from tandem.chassis.server import serve
from tandem.chassis.settings import load_or_exit
from tandem.chassis.tls import load_identity_or_exit
from tandem.v1 import model_service_pb2, search_service_pb2
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server


async def main(settings: OrchestratorSettings) -> None:
    """Serves until a signal stops it."""
    identity = load_identity_or_exit()
    encoder_channel = open_channel(settings.encoder_address, identity)
    index_channels = [open_channel(address, identity) for address in settings.index_addresses]
    rerank_channels = [open_channel(address, identity) for address in settings.rerank_addresses]
    breaker_rule = BreakerRule(
        consecutive_count=settings.breaker_consecutive_count,
        failure_share=settings.breaker_failure_share,
        probe_seconds=settings.breaker_probe_seconds,
    )
    retry_budget = RetryBudget(settings.retry_share)
    encoder = EncoderClient(encoder_channel, retry_budget, breaker_rule)
    pairs = zip(index_channels, rerank_channels, strict=True)
    shards = [
        ShardClient(index, rerank, number, settings.shard_map_version, retry_budget, breaker_rule)
        for number, (index, rerank) in enumerate(pairs)
    ]
    shard_map = ShardMap(len(shards), settings.shard_map_version)
    chunk_rule = ChunkRule(
        seconds=settings.rerank_chunk_seconds, pair_count=settings.rerank_chunk_pair_count
    )
    searcher = Searcher.over(
        encoder,
        shards,
        shard_map,
        minimum_coverage=settings.minimum_coverage,
        shares=TimeShares(
            encode=settings.encode_time_share,
            retrieval=settings.retrieval_time_share,
            reserve=settings.reserve_time_share,
            neighbours=settings.neighbours_time_share,
        ),
        chunk_rule=chunk_rule,
        neighbour_pool_count=settings.neighbour_pool_count,
    )
    servicer = SearchServicer(
        searcher,
        BatchSearcher(encoder, shards, searcher.services, searcher.depth_rules, chunk_rule),
        Ingester(
            encoder,
            shards,
            shard_map,
            settings.ingest_batch_timeout_seconds,
            settings.ingest_encode_batch_count,
        ),
        Remover(shards, shard_map),
        shard_map,
        default_timeout_seconds=settings.default_timeout_seconds,
        max_timeout_seconds=settings.max_timeout_seconds,
        ingest_pending_batch_count=settings.ingest_pending_batch_count,
    )
    model_servicer = SearchModelServicer(
        encoder, searcher.depth_rules, settings.default_timeout_seconds
    )
    dependencies = Dependencies(
        encoder_channel,
        index_channels,
        rerank_channels,
        wait_seconds=settings.start_wait_seconds,
    )

    def register(server: grpc.aio.Server) -> None:
        add_SearchServiceServicer_to_server(servicer, server)
        add_ModelServiceServicer_to_server(model_servicer, server)

    async def close() -> None:
        for channel in (encoder_channel, *index_channels, *rerank_channels):
            await channel.close()

    await serve(
        settings,
        name="orchestrator",
        register=register,
        service_names=[
            search_service_pb2.DESCRIPTOR.services_by_name["SearchService"].full_name,
            model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
        ],
        warm=dependencies.check,
        close=close,
        identity=identity,
        guard=load_guard_or_exit(identity),
    )


if __name__ == "__main__":
    asyncio.run(main(load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")))
