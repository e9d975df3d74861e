"""A search between its messages and our own types."""

from orchestrator_svc.clients import FetchedItem
from orchestrator_svc.coverage import Coverage
from orchestrator_svc.depth import Depth
from orchestrator_svc.query import QueryPart, SearchQuery
from orchestrator_svc.ranking import RankedHit
from orchestrator_svc.search import SearchAnswer
from tandem.attribute_wire import attributes_to_proto, filter_from_proto
from tandem.inference_cost import cost_to_proto
from tandem.v1 import search_service_pb2
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    duration_to_proto,
    item_error_to_proto,
    modality_from_proto,
    text_use_to_proto,
)


def query_from_proto(request: search_service_pb2.SearchItemsRequest) -> SearchQuery:
    """Returns the query; raises what is wrong with it as far as the message alone shows."""
    content = content_from_proto(request.query)
    return SearchQuery(
        parts=(QueryPart(content),),
        index_id=request.index_id,
        target_modality=modality_from_proto(request.target_modality) or content.modality.other,
        depth=Depth.of(
            request.retrieve_k if request.HasField("retrieve_k") else None,
            request.rerank_k if request.HasField("rerank_k") else None,
            request.return_n if request.HasField("return_n") else None,
        ),
        is_reranked=not request.rerank_disabled,
        is_content_included=request.content_included,
        where=filter_from_proto(request.filter) if request.HasField("filter") else None,
        consistency_tokens=request.consistency_tokens,
        is_full_coverage_required=request.full_coverage_required,
    )


def answer_to_proto(answer: SearchAnswer) -> search_service_pb2.SearchItemsResponse:
    """Returns the message that tells the answer."""
    seconds = answer.stage_seconds
    return search_service_pb2.SearchItemsResponse(
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
        ),
        coverage=_coverage(answer.coverage),
        rerank=search_service_pb2.RerankSummary(
            reranked_depth=answer.rerank.reranked_depth,
            stop=f"RERANK_STOP_{answer.rerank.stop.name}",
            missing_count=answer.rerank.missing_count,
        ),
        text_uses=[text_use_to_proto(use) for use in answer.encoded.text_uses],
        cost=cost_to_proto(answer.encoded.cost + answer.rerank.cost),
    )


def _coverage(coverage: Coverage) -> search_service_pb2.Coverage:
    return search_service_pb2.Coverage(
        answered_shard_count=coverage.answered_shard_count,
        shard_count=coverage.shard_count,
        covered_item_count=coverage.covered_item_count,
        item_count=coverage.item_count,
        missing_shards=[
            search_service_pb2.MissingShard(
                shard_number=number, reason=item_error_to_proto(error).reason
            )
            for number, error in sorted(coverage.missing.items())
        ],
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
        content=content_to_proto(fetched.content) if fetched else None,
        attributes=attributes_to_proto(fetched.attributes) if fetched else None,
    )
