"""Wires and runs the orchestrator: python -m orchestrator_svc."""

import asyncio
import sys

from orchestrator_svc.clients import EncoderClient, ShardClient
from orchestrator_svc.dependencies import check_dependencies
from orchestrator_svc.ingest import Ingester
from orchestrator_svc.metrics import StageClock
from orchestrator_svc.removal import Remover
from orchestrator_svc.search import Searcher
from orchestrator_svc.servicer import SearchServicer
from orchestrator_svc.settings import OrchestratorSettings
from orchestrator_svc.shard_map import ShardMap
from tandem.chassis.admission import AdmissionLimits
from tandem.chassis.channels import open_channel
from tandem.chassis.server import serve
from tandem.chassis.settings import load_or_exit
from tandem.v1 import search_service_pb2
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server


async def main(settings: OrchestratorSettings) -> None:
    """Serves until told to stop."""
    encoder_channel = open_channel(settings.encoder_address)
    index_channels = [open_channel(address) for address in settings.index_addresses]
    rerank_channels = [open_channel(address) for address in settings.rerank_addresses]
    channels = {
        "encoder": encoder_channel,
        **{f"index-{number}": channel for number, channel in enumerate(index_channels)},
        **{f"rerank-{number}": channel for number, channel in enumerate(rerank_channels)},
    }
    encoder = EncoderClient(encoder_channel)
    pairs = zip(index_channels, rerank_channels, strict=True)
    shards = [
        ShardClient(index, rerank, number, settings.shard_map_version)
        for number, (index, rerank) in enumerate(pairs)
    ]
    shard_map = ShardMap(len(shards), settings.shard_map_version)
    clock = StageClock()
    servicer = SearchServicer(
        Searcher.over(
            encoder,
            shards,
            shard_map,
            clock,
            minimum_coverage=settings.minimum_coverage,
            retrieval_time_share=settings.retrieval_time_share,
        ),
        Ingester(encoder, shards, shard_map, clock, settings.ingest_batch_timeout_seconds),
        Remover(shards, shard_map),
        shard_map,
        default_timeout_seconds=settings.default_timeout_seconds,
        ingest_pending_batch_count=settings.ingest_pending_batch_count,
    )

    async def warm() -> None:
        await check_dependencies(channels)

    async def close() -> None:
        for channel in channels.values():
            await channel.close()

    await serve(
        name="orchestrator",
        address=settings.address,
        metrics_port=settings.metrics_port,
        register=lambda server: add_SearchServiceServicer_to_server(servicer, server),
        service_names=[search_service_pb2.DESCRIPTOR.services_by_name["SearchService"].full_name],
        warm=warm,
        close=close,
        drain_notice_seconds=settings.drain_notice_seconds,
        grace_seconds=settings.grace_seconds,
        limits=AdmissionLimits(
            max_inflight_count=settings.max_inflight_count,
            max_inflight_bytes=settings.max_inflight_bytes,
            max_stream_count=settings.max_ingest_stream_count,
            max_stream_message_count=settings.max_ingest_batch_count,
            max_stream_bytes=settings.max_ingest_bytes,
            call_weights={"BatchSearchItems": lambda request: len(request.searches)},
        ),
    )


if __name__ == "__main__":
    loaded = load_or_exit(OrchestratorSettings, "ORCHESTRATOR_")
    if not loaded.index_addresses or len(loaded.index_addresses) != len(loaded.rerank_addresses):
        sys.exit(
            "ORCHESTRATOR_INDEX_ADDRESSES and ORCHESTRATOR_RERANK_ADDRESSES must name the same "
            f"number of shards, at least one; they name {len(loaded.index_addresses)} and "
            f"{len(loaded.rerank_addresses)}"
        )
    if loaded.ingest_pending_batch_count < 1:
        sys.exit(
            "ORCHESTRATOR_INGEST_PENDING_BATCH_COUNT must be at least 1, or no batch is ever read; "
            f"it is {loaded.ingest_pending_batch_count}"
        )
    if loaded.shard_map_version < 1:
        sys.exit(
            "ORCHESTRATOR_SHARD_MAP_VERSION must be at least 1, for shards do not check 0; it is "
            f"{loaded.shard_map_version}"
        )
    if not 0 <= loaded.minimum_coverage <= 1:
        sys.exit(
            "ORCHESTRATOR_MINIMUM_COVERAGE must be a share, 0 to 1; it is "
            f"{loaded.minimum_coverage}"
        )
    if not 0 < loaded.retrieval_time_share <= 1:
        sys.exit(
            "ORCHESTRATOR_RETRIEVAL_TIME_SHARE must be a share over 0, at most 1; it is "
            f"{loaded.retrieval_time_share}"
        )
    asyncio.run(main(loaded))
