"""Puts the orchestrator together over the stages of a search."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.search.batch_search import BatchSearcher
from tandem.search.calls.guarded import GuardedEncoder, GuardedReranker, GuardedShard
from tandem.search.calls.retry_budget import RetryBudget
from tandem.search.contents.documents import DocumentScorer
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.indexes.calibrations import Calibrations
from tandem.search.indexes.generations import Generations
from tandem.search.indexes.index_list import IndexList
from tandem.search.indexes.index_survey import IndexSurvey
from tandem.search.indexes.keeper import Keeper
from tandem.search.indexes.router import ModelSet, Router
from tandem.search.indexes.shadow import Shadow
from tandem.search.neighbours.neighbour_stage import NeighbourStage
from tandem.search.orchestrator import Orchestrator
from tandem.search.rerank.adaptive_depth import DepthRules
from tandem.search.rerank.pace import RerankPace
from tandem.search.search import Searcher, SearchServices
from tandem.search.settings import SearchSettings
from tandem.search.shard_map import ShardMap
from tandem.search.writes.changes import Changer
from tandem.search.writes.ingest import Ingester
from tandem.search.writes.ingest_stream import IngestStream
from tandem.search.writes.removal import Remover
from tandem.search.writes.selected import SelectedItems
from tandem.search.writes.shard_writes import ShardWrites
from tandem.stages.encoding import Encoder
from tandem.stages.reranking import Reranker
from tandem.stages.shard import Shard
from tandem.stages.stage import Stage

NEXT = "next-"
"""Begins the names of a second model's services in errors and metrics."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Holds the stages that the orchestrator calls; shards and their rerankers by number."""

    encoder: GuardedEncoder
    shards: Sequence[GuardedShard]
    rerankers: Sequence[GuardedReranker]


def guarded_stages(
    settings: SearchSettings,
    encoder: Encoder,
    shards: Sequence[Shard],
    rerankers: Sequence[Reranker],
    serving: Stages | None = None,
) -> Stages:
    """Returns stages, here or elsewhere, with circuit breakers and one budget of retries.

    With `serving` they are of a next model, over the guarded shards that are there.
    """
    budget = RetryBudget(settings.retry_share)
    name = NEXT if serving else ""
    return Stages(
        GuardedEncoder(encoder, budget, settings, name),
        serving.shards
        if serving
        else [GuardedShard(each, number, budget, settings) for number, each in enumerate(shards)],
        [GuardedReranker(each, n, budget, settings, name) for n, each in enumerate(rerankers)],
    )


def make_orchestrator(
    settings: SearchSettings,
    stages: Stages,
    more_stages: Sequence[Stage] = (),
    moved_from: tuple[int, int] | None = None,
    next_stages: Stages | None = None,
) -> Orchestrator:
    """Returns the orchestrator over the stages; `more_stages` follow the order by neighbours.

    `moved_from` is the shard map before, as ShardMap takes it; `next_stages` are of a second model
    over the same shards.
    """
    shards = stages.shards
    shard_map = ShardMap(len(shards), settings.shard_map_version, moved_from)
    calibrations = Calibrations(shards[0])
    sets = [
        _model_set(settings, each, more_stages, shard_map, calibrations)
        for each in (stages, next_stages)
        if each is not None
    ]
    book, encoders = AliasBook(shards), [each.encoder for each in sets]
    router = Router(book, sets)
    generations = Generations(book, encoders, shards)
    ingester = Ingester(
        router,
        shards,
        shard_map,
        settings.ingest_batch_timeout_seconds,
        settings.ingest_encode_batch_count,
    )
    stored_items = StoredItems(shards, shard_map)
    writes = ShardWrites(router, shards, shard_map)
    selected = SelectedItems(router, stored_items, shard_map)
    return Orchestrator(
        router=router,
        ingest_stream=IngestStream(
            ingester, shard_map, pending_batch_count=settings.ingest_pending_batch_count
        ),
        remover=Remover(writes, selected),
        changer=Changer(writes, selected),
        survey=IndexSurvey(shards),
        index_list=IndexList(shards, book),
        stored_items=stored_items,
        shadow=Shadow(router, generations),
        generations=generations,
        keeper=Keeper(
            book,
            encoders,
            shards,
            settings.reembed_share,
            settings.ingest_encode_batch_count,
        ),
    )


def _model_set(
    settings: SearchSettings,
    stages: Stages,
    more_stages: Sequence[Stage],
    shard_map: ShardMap,
    calibrations: Calibrations,
) -> ModelSet:
    """Returns what answers by one model; what it keeps of searches is of that model alone."""
    encoder, shards, rerankers = stages.encoder, stages.shards, stages.rerankers
    services = SearchServices(
        encoder=encoder,
        shards=shards,
        readers=shards,
        scorers=rerankers,
        shard_map=shard_map,
        settings=settings,
        pace=RerankPace(settings),
        calibrations=calibrations,
        stages=[
            NeighbourStage(
                shards, rerankers, settings.neighbour_pool_count, settings.neighbours_time_share
            ),
            *more_stages,
        ],
    )
    searcher = Searcher(services, DepthRules(rerankers))
    return ModelSet(
        encoder=encoder,
        searcher=searcher,
        batch_searcher=BatchSearcher(services, searcher.depth_rules),
        documents=DocumentScorer(encoder, rerankers, shard_map),
    )
