"""Converts queries, answers and pages from and to messages."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator_svc.wire.cursor_wire import Page, explanation_to_proto, make_cursor
from tandem.contract.attribute_wire import (
    CheckedFilter,
    attributes_to_proto,
    checked_filter,
    filter_to_proto,
)
from tandem.contract.content import Modality
from tandem.contract.filter_expression import parse_filter
from tandem.contract.hybrid import HybridFusion, hybrid_rank_to_proto
from tandem.contract.inference_cost import InferenceCost, cost_to_proto
from tandem.contract.search_path import ShardRetrieval, path_to_proto
from tandem.errors import (
    FilterInvalid,
    QueryInvalid,
    RankingInvalid,
    TandemError,
)
from tandem.search.calls.item_reader import FetchedItem
from tandem.search.coverage import SearchCoverage
from tandem.search.depth import Depth
from tandem.search.neighbours.outcome import NeighbourOutcome
from tandem.search.query import (
    EncodingSource,
    HybridRule,
    RankingRule,
    SearchQuery,
    StoredItemSource,
    WeightedPart,
    usual_keywords,
    usual_target,
)
from tandem.search.ranking.ranking import RankedHit
from tandem.search.search import SearchAnswer
from tandem.v1 import content_pb2, search_service_pb2
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    duration_to_proto,
    embedding_from_proto,
    fusion_from_proto,
    item_error_to_proto,
    modality_from_proto,
    modality_to_proto,
    text_use_to_proto,
    tokens_from_proto,
    truncation_policy_from_proto,
)

_HYBRID_FUSIONS: Mapping[int, HybridFusion] = {
    search_service_pb2.HYBRID_FUSION_UNSPECIFIED: HybridFusion.RECIPROCAL_RANK,
    search_service_pb2.HYBRID_FUSION_RECIPROCAL_RANK: HybridFusion.RECIPROCAL_RANK,
    search_service_pb2.HYBRID_FUSION_Z_SCORE: HybridFusion.Z_SCORE,
    search_service_pb2.HYBRID_FUSION_DISTRIBUTION: HybridFusion.DISTRIBUTION,
}


def query_from_proto(request: search_service_pb2.SearchItemsRequest) -> SearchQuery:
    """Returns the query; raises what is unknown in it, and what SearchQuery raises."""
    parts = _parts(request)
    return SearchQuery(
        parts=parts,
        index_id=request.index_id,
        target_modality=_target(request, parts),
        depth=Depth.of(
            request.retrieve_k if request.HasField("retrieve_k") else None,
            request.rerank_k if request.HasField("rerank_k") else None,
            request.return_n if request.HasField("return_n") else None,
        ),
        rerank_disabled=request.rerank_disabled,
        content_included=request.content_included,
        attributes_included=request.attributes_included,
        filter=_filter(request),
        consistency_tokens=request.consistency_tokens,
        full_coverage_required=request.full_coverage_required,
        all_modalities_included=request.all_modalities_included,
        ranking=_ranking(request),
        explained=request.explained,
        truncation_policy=truncation_policy_from_proto(request.truncation_policy),
        rerank_required=request.rerank_required,
        adaptive_depth=request.adaptive_depth,
        neighbours_enabled=request.neighbours_enabled,
        neighbours_required=request.neighbours_required,
        hybrid=_hybrid(request, parts) if request.HasField("hybrid") else None,
    )


def _filter(request: search_service_pb2.SearchItemsRequest) -> CheckedFilter | None:
    if request.filter_text:
        if request.HasField("filter"):
            raise FilterInvalid(why="set filter or filter_text, not both")
        return checked_filter(filter_to_proto(parse_filter(request.filter_text)))
    return checked_filter(request.filter) if request.HasField("filter") else None


def _hybrid(
    request: search_service_pb2.SearchItemsRequest, parts: Sequence[WeightedPart]
) -> HybridRule:
    """Returns the rule; raises RankingInvalid, and what HybridRule raises."""
    message = request.hybrid
    if message.fusion not in _HYBRID_FUSIONS:
        raise RankingInvalid(why=f"hybrid fusion {message.fusion} is unknown; send a HybridFusion")
    rule = HybridRule(
        keywords=message.keywords or usual_keywords(parts), fusion=_HYBRID_FUSIONS[message.fusion]
    )
    if not message.HasField("keyword_weight"):
        return rule
    return replace(rule, keyword_weight=message.keyword_weight)


def answer_to_proto(answer: SearchAnswer) -> search_service_pb2.SearchItemsResponse:
    """Returns the answer's message, with a cursor for its remaining items."""
    seconds = answer.stage_seconds
    response = search_service_pb2.SearchItemsResponse(
        items=[
            _ranked_item(entry, answer.contents.get(entry.hit.item_id)) for entry in answer.ranked
        ],
        model_fingerprint=answer.encoded.fingerprint,
        durations=search_service_pb2.StageDurations(
            encode_duration=duration_to_proto(seconds["encode"]),
            retrieve_duration=duration_to_proto(seconds["retrieve"]),
            rerank_duration=duration_to_proto(seconds.get("rerank", 0.0)),
            fetch_duration=duration_to_proto(seconds.get("fetch", 0.0)),
            rank_duration=duration_to_proto(seconds["rank"]),
            total_duration=duration_to_proto(seconds["total"]),
            neighbours_duration=duration_to_proto(seconds["neighbours"])
            if "neighbours" in seconds
            else None,
        ),
        coverage=coverage_to_proto(answer.coverage),
        rerank=search_service_pb2.RerankSummary(
            reranked_depth=answer.rerank.reranked_depth,
            stop=f"RERANK_STOP_{answer.rerank.stop.name}",
            missing_count=answer.rerank.missing_count,
            reranker=answer.rerank.reranker,
            probability_withheld="ERROR_REASON_UNCALIBRATED"
            if answer.rerank.is_uncalibrated
            else None,
        ),
        degradations=[f"DEGRADATION_{each.name}" for each in answer.degradations],
        text_uses=[text_use_to_proto(use) for use in answer.encoded.text_uses],
        cost=cost_to_proto(_cost(answer)),
        model_version=answer.encoded.model_version or answer.rerank.model_version,
        retrievals=map(_retrieval, answer.coverage.retrievals),
        neighbours=_neighbours(answer.neighbours) if answer.neighbours else None,
    )
    start_time = time.perf_counter()
    response.next_cursor = make_cursor(
        answer.remaining,
        response,
        index_id=answer.query.index_id,
        return_n=answer.query.depth.return_n,
    )
    cursor_seconds = time.perf_counter() - start_time
    durations = response.durations
    durations.rank_duration.CopyFrom(duration_to_proto(seconds["rank"] + cursor_seconds))
    durations.total_duration.CopyFrom(duration_to_proto(seconds["total"] + cursor_seconds))
    return response


def page_to_proto(
    page: Page, contents: Mapping[str, FetchedItem], stage_seconds: Mapping[str, float]
) -> search_service_pb2.SearchItemsResponse:
    """Returns the message of a page of an earlier answer."""
    return search_service_pb2.SearchItemsResponse(
        items=[_ranked_item(entry, contents.get(entry.hit.item_id)) for entry in page.ranked],
        model_fingerprint=page.held.model_fingerprint,
        durations=search_service_pb2.StageDurations(
            fetch_duration=duration_to_proto(stage_seconds.get("fetch", 0.0)),
            rank_duration=duration_to_proto(stage_seconds["rank"]),
            total_duration=duration_to_proto(sum(stage_seconds.values())),
        ),
        coverage=page.held.coverage,
        rerank=page.held.rerank,
        degradations=page.held.degradations,
        next_cursor=page.next_cursor,
        model_version=page.held.model_version,
        neighbours=page.held.neighbours if page.held.HasField("neighbours") else None,
    )


def _parts(request: search_service_pb2.SearchItemsRequest) -> Sequence[WeightedPart]:
    if request.HasField("query"):
        if request.query_parts:
            raise QueryInvalid(why="query and query_parts are both set; set one of them")
        return (WeightedPart(content_from_proto(request.query)),)
    if not request.query_parts:
        raise QueryInvalid(why="neither query nor query_parts nor cursor is set; set one of them")
    return tuple(map(_part, request.query_parts))


def _part(message: search_service_pb2.QueryPart) -> WeightedPart:
    weight = message.weight if message.HasField("weight") else 1.0
    match message.WhichOneof("source"):
        case "content":
            return WeightedPart(content_from_proto(message.content), weight)
        case "item_id":
            return WeightedPart(StoredItemSource(message.item_id), weight)
        case "encoding":
            return WeightedPart(_given(message.encoding), weight)
        case _:
            raise QueryInvalid(why="a part has neither content nor item_id nor encoding; send one")


def _given(message: search_service_pb2.GivenEncoding) -> EncodingSource:
    tokens = (
        tokens_from_proto(message.tokens, may_be_empty=True) if message.HasField("tokens") else None
    )
    modality = modality_from_proto(message.modality) or (tokens.modality if tokens else None)
    if modality is None:
        raise QueryInvalid(why="a given encoding has no modality; send one")
    return EncodingSource(
        embedding_from_proto(message.embedding), modality, tokens, message.model_fingerprint
    )


def _target(
    request: search_service_pb2.SearchItemsRequest, parts: Sequence[WeightedPart]
) -> Modality:
    """Returns the modality to find; raises QueryInvalid for one that this version does not know."""
    if not request.target_modality:
        return usual_target(parts)
    if (found := modality_from_proto(request.target_modality)) is None:
        raise QueryInvalid(
            why=f"target_modality {request.target_modality} is unknown; send a Modality"
        )
    return found


def _ranking(request: search_service_pb2.SearchItemsRequest) -> RankingRule:
    """Returns the rule; raises RankingInvalid."""
    fusion, diversity = request.fusion, request.diversity
    method = fusion_from_proto(fusion.method)
    if method is None and fusion.method:
        raise RankingInvalid(why=f"fusion method {fusion.method} is unknown; send a FusionMethod")
    return RankingRule(
        fusion=method,
        cross_encoder_weight=fusion.cross_encoder_weight
        if fusion.HasField("cross_encoder_weight")
        else None,
        min_probability=request.min_probability if request.HasField("min_probability") else None,
        relevance_weight=diversity.relevance_weight
        if diversity.HasField("relevance_weight")
        else None,
        duplicate_similarity=diversity.duplicate_similarity
        if diversity.HasField("duplicate_similarity")
        else None,
    )


def _cost(answer: SearchAnswer) -> InferenceCost:
    cost = answer.encoded.cost + answer.rerank.cost
    return cost + answer.neighbours.cost if answer.neighbours else cost


def coverage_to_proto(coverage: SearchCoverage) -> search_service_pb2.Coverage:
    """Returns the message for the coverage."""
    return search_service_pb2.Coverage(
        answered_shard_count=coverage.answered_shard_count,
        shard_count=coverage.shard_count,
        covered_item_count=coverage.covered_item_count,
        item_count=coverage.item_count,
        missing_shards=missing_to_proto(coverage.missing),
    )


def _neighbours(outcome: NeighbourOutcome) -> search_service_pb2.NeighbourSummary:
    return search_service_pb2.NeighbourSummary(
        scored_count=len(outcome.scores),
        stop=f"NEIGHBOUR_STOP_{outcome.stop.name}",
        neighbour_model=outcome.neighbour_model,
        missing_shards=missing_to_proto(outcome.missing),
    )


def fetched_content(fetched: FetchedItem | None) -> content_pb2.Content | None:
    """Returns the message of the content, if it was read."""
    return content_to_proto(fetched.content) if fetched and fetched.content else None


def missing_to_proto(
    missing: Mapping[int, TandemError],
) -> list[search_service_pb2.MissingShard]:
    """Returns the messages for the shards that did not answer."""
    return [
        search_service_pb2.MissingShard(
            shard_number=number, reason=item_error_to_proto(error).reason
        )
        for number, error in sorted(missing.items())
    ]


def _retrieval(retrieval: ShardRetrieval) -> search_service_pb2.ShardRetrieval:
    return search_service_pb2.ShardRetrieval(
        shard_number=retrieval.shard_number,
        modality=modality_to_proto(retrieval.modality) if retrieval.modality else None,
        path=path_to_proto(retrieval.path),
        item_count=retrieval.item_count,
        keyword_state=retrieval.keyword_state.value if retrieval.keyword_state else None,
    )


def _ranked_item(entry: RankedHit, fetched: FetchedItem | None) -> search_service_pb2.RankedItem:
    match = entry.match
    return search_service_pb2.RankedItem(
        item_id=entry.hit.item_id,
        similarity=entry.hit.similarity,
        match_logit=match.logit if match else None,
        match_probability=match.probability if match else None,
        retrieve_rank=entry.retrieve_rank,
        final_rank=entry.final_rank,
        content=fetched_content(fetched),
        attributes=attributes_to_proto(fetched.attributes) if fetched else None,
        modality=modality_to_proto(entry.hit.modality) if entry.hit.modality else None,
        score=entry.score,
        explanation=explanation_to_proto(entry.explanation) if entry.explanation else None,
        neighbour_score=entry.neighbour_score,
        ordered_by=f"ORDERING_STAGE_{entry.ordered_by.name}",
        hybrid=hybrid_rank_to_proto(entry.hit.hybrid) if entry.hit.hybrid else None,
    )
