"""Puts the orchestrator together over the stages of a search."""

from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from orchestrator_svc.call_deadline import CallDeadline
from orchestrator_svc.content_servicer import ContentServicer
from orchestrator_svc.model_servicer import SearchModelServicer
from orchestrator_svc.servicer import SearchServicer
from orchestrator_svc.settings import OrchestratorSettings
from tandem.remote.encoder import RemoteEncoder
from tandem.remote.reranker import RemoteReranker
from tandem.remote.shard import RemoteShard
from tandem.search.batch_search import BatchSearcher
from tandem.search.calls.breaker import BreakerRule
from tandem.search.calls.guarded import GuardedEncoder, GuardedReranker, GuardedShard
from tandem.search.calls.retry_budget import RetryBudget
from tandem.search.contents.content_room import ContentBudget
from tandem.search.contents.documents import DocumentScorer
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.index_list import IndexList
from tandem.search.indexes.index_survey import IndexSurvey
from tandem.search.orchestrator import Orchestrator
from tandem.search.rerank.pace import ChunkRule
from tandem.search.search import Searcher
from tandem.search.shard_map import ShardMap
from tandem.search.time_budget import TimeShares
from tandem.search.writes.ingest import Ingester
from tandem.search.writes.ingest_stream import IngestStream
from tandem.search.writes.removal import Remover
from tandem.stages.encoding import Encoder
from tandem.stages.reranking import Reranker
from tandem.stages.shard import Shard
from tandem.v1 import content_service_pb2, model_service_pb2, search_service_pb2
from tandem.v1.content_service_pb2_grpc import add_ContentServiceServicer_to_server
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server

SERVICE_NAMES = (
    search_service_pb2.DESCRIPTOR.services_by_name["SearchService"].full_name,
    content_service_pb2.DESCRIPTOR.services_by_name["ContentService"].full_name,
    model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
)


@dataclass(frozen=True, slots=True)
class Servicers:
    """Holds what the orchestrator serves."""

    search: SearchServicer
    model: SearchModelServicer
    content: ContentServicer

    def register(self, server: grpc.aio.Server) -> None:
        """Adds them to a server, which serves SERVICE_NAMES then."""
        add_SearchServiceServicer_to_server(self.search, server)
        add_ContentServiceServicer_to_server(self.content, server)
        add_ModelServiceServicer_to_server(self.model, server)


@dataclass(frozen=True, slots=True)
class Stages:
    """Holds the stages that the orchestrator calls; shards and their rerankers by number."""

    encoder: GuardedEncoder
    shards: Sequence[GuardedShard]
    rerankers: Sequence[GuardedReranker]


def connected_stages(
    settings: OrchestratorSettings,
    encoder_channel: grpc.aio.Channel,
    index_channels: Sequence[grpc.aio.Channel],
    rerank_channels: Sequence[grpc.aio.Channel],
) -> Stages:
    """Returns the stages behind channels, those of the shards in the shards' order."""
    version = settings.shard_map_version
    return guarded_stages(
        settings,
        RemoteEncoder(encoder_channel),
        [RemoteShard(each, number, version) for number, each in enumerate(index_channels)],
        [RemoteReranker(each, number) for number, each in enumerate(rerank_channels)],
    )


def guarded_stages(
    settings: OrchestratorSettings,
    encoder: Encoder,
    shards: Sequence[Shard],
    rerankers: Sequence[Reranker],
) -> Stages:
    """Returns stages, here or elsewhere, with circuit breakers and one budget of retries."""
    budget = RetryBudget(settings.retry_share)
    rule = BreakerRule(
        consecutive_count=settings.breaker_consecutive_count,
        failure_share=settings.breaker_failure_share,
        probe_seconds=settings.breaker_probe_seconds,
    )
    return Stages(
        GuardedEncoder(encoder, budget, rule),
        [GuardedShard(each, number, budget, rule) for number, each in enumerate(shards)],
        [GuardedReranker(each, number, budget, rule) for number, each in enumerate(rerankers)],
    )


def make_orchestrator(settings: OrchestratorSettings, stages: Stages) -> Orchestrator:
    """Returns the orchestrator over the stages."""
    encoder, shards, rerankers = stages.encoder, stages.shards, stages.rerankers
    shard_map = ShardMap(len(shards), settings.shard_map_version)
    chunk_rule = ChunkRule(
        seconds=settings.rerank_chunk_seconds, pair_count=settings.rerank_chunk_pair_count
    )
    searcher = Searcher.over(
        encoder,
        shards,
        rerankers,
        shard_map,
        minimum_coverage=settings.minimum_coverage,
        shares=TimeShares(
            encode=settings.encode_time_share,
            retrieval=settings.retrieval_time_share,
            retrieval_seconds=settings.retrieval_wait_seconds,
            reserve=settings.reserve_time_share,
            neighbours=settings.neighbours_time_share,
        ),
        chunk_rule=chunk_rule,
        neighbour_pool_count=settings.neighbour_pool_count,
    )
    ingester = Ingester(
        encoder,
        shards,
        shard_map,
        settings.ingest_batch_timeout_seconds,
        settings.ingest_encode_batch_count,
    )
    return Orchestrator(
        searcher=searcher,
        batch_searcher=BatchSearcher(
            encoder, shards, rerankers, searcher.services, searcher.depth_rules, chunk_rule
        ),
        ingest_stream=IngestStream(
            ingester, shard_map, pending_batch_count=settings.ingest_pending_batch_count
        ),
        remover=Remover(shards, shard_map),
        survey=IndexSurvey(shards),
        index_list=IndexList(shards),
        stored_items=StoredItems(shards, shard_map),
        documents=DocumentScorer(encoder, rerankers, shard_map),
        describe_encoder=encoder.describe_model,
    )


def make_servicers(settings: OrchestratorSettings, orchestrator: Orchestrator) -> Servicers:
    """Returns the servicers over the orchestrator."""
    deadline = CallDeadline(settings.default_timeout_seconds, settings.max_timeout_seconds)
    content_budget = ContentBudget()
    return Servicers(
        SearchServicer(orchestrator, deadline, content_budget),
        SearchModelServicer(orchestrator, deadline),
        ContentServicer(orchestrator, deadline, content_budget),
    )
