"""Converts answers of searches and writes from and to messages.

Pure Python, because the SDK uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tandem.contract.content import Content, ImageContent, Modality, TextContent, TextUse
from tandem.contract.duration_wire import duration_from_proto, duration_to_proto
from tandem.contract.filtering.attribute_wire import attributes_to_proto, value_from_proto
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.fusion import hybrid_rank_from_proto, hybrid_rank_to_proto
from tandem.contract.inference_cost import cost_from_proto, cost_to_proto
from tandem.contract.regions import RegionContent, regions_from_proto, regions_to_proto
from tandem.contract.search.answer import (
    Coverage,
    Explanation,
    FoundItem,
    NeighbourSummary,
    Removal,
    RerankSummary,
    ScoreTerm,
    SearchResult,
    StageSeconds,
)
from tandem.contract.search.answer_names import (
    DegradationKind,
    ErrorReason,
    NeighbourStopReason,
    OrderedBy,
    RerankStopReason,
)
from tandem.contract.search_path import (
    KeywordState,
    ShardRetrieval,
    path_from_proto,
    path_to_proto,
)
from tandem.errors import ContentMissing, ServerUnknown, TandemError, error_from_reason
from tandem.v1 import attribute_pb2, content_pb2, error_reason_pb2, search_service_pb2

_MODALITY_TO_PROTO: Mapping[Modality, content_pb2.Modality] = {
    Modality.TEXT: content_pb2.MODALITY_TEXT,
    Modality.IMAGE: content_pb2.MODALITY_IMAGE,
}
_MODALITIES: Mapping[int, Modality] = {value: each for each, value in _MODALITY_TO_PROTO.items()}


class _Names(Protocol):
    """A protobuf enum."""

    def Name(self, number: int) -> str:
        """Returns the value's name; raises ValueError for an unknown value."""
        ...


def result_to_proto(result: SearchResult) -> search_service_pb2.SearchItemsResponse:
    """Returns the answer of SearchItems."""
    seconds = result.seconds
    durations = search_service_pb2.StageDurations(
        fetch_duration=duration_to_proto(seconds.fetch),
        rank_duration=duration_to_proto(seconds.rank),
        total_duration=duration_to_proto(seconds.total),
    )
    if seconds.encode:  # A page of a cursor encodes, searches and scores nothing.
        durations.encode_duration.CopyFrom(duration_to_proto(seconds.encode))
        durations.retrieve_duration.CopyFrom(duration_to_proto(seconds.retrieve))
        durations.rerank_duration.CopyFrom(duration_to_proto(seconds.rerank))
        if result.neighbours:
            durations.neighbours_duration.CopyFrom(duration_to_proto(seconds.neighbours))
    return search_service_pb2.SearchItemsResponse(
        items=map(_ranked_item, result.items),
        model_fingerprint=result.model_fingerprint,
        durations=durations,
        coverage=coverage_to_proto(result.coverage),
        rerank=rerank_to_proto(result.rerank),
        degradations=degradations_to_proto(result.degradations),
        text_uses=map(text_use_to_proto, result.text_uses),
        cost=cost_to_proto(result.cost) if seconds.encode else None,
        next_cursor=result.next_cursor,
        model_version=result.model_version,
        retrievals=map(_retrieval, result.retrievals),
        neighbours=neighbours_to_proto(result.neighbours) if result.neighbours else None,
    )


def coverage_to_proto(coverage: Coverage) -> search_service_pb2.Coverage:
    """Returns the message of a coverage."""
    return search_service_pb2.Coverage(
        answered_shard_count=coverage.answered_shard_count,
        shard_count=coverage.shard_count,
        covered_item_count=coverage.covered_item_count,
        item_count=coverage.item_count,
        missing_shards=missing_to_proto(coverage.missing_shards),
    )


def missing_to_proto(
    missing: Mapping[int, ErrorReason],
) -> list[search_service_pb2.MissingShard]:
    """Returns the messages of the shards that did not answer."""
    return [
        search_service_pb2.MissingShard(shard_number=number, reason=_value(reason, "ERROR_REASON_"))
        for number, reason in missing.items()
    ]


def rerank_to_proto(summary: RerankSummary) -> search_service_pb2.RerankSummary:
    """Returns the message of what was reranked."""
    return search_service_pb2.RerankSummary(
        reranked_depth=summary.reranked_depth,
        stop=_value(summary.stop, "RERANK_STOP_"),
        missing_count=summary.missing_count,
        reranker=summary.reranker,
        probability_withheld=withheld_to_proto(summary.probability_withheld),
    )


def rerank_from_proto(summary: search_service_pb2.RerankSummary) -> RerankSummary:
    """Returns what was reranked."""
    return RerankSummary(
        summary.reranked_depth,
        RerankStopReason(_name(search_service_pb2.RerankStop, summary.stop, "RERANK_STOP_")),
        summary.missing_count,
        summary.reranker,
        withheld(summary.probability_withheld),
    )


def withheld_to_proto(reason: ErrorReason | None) -> error_reason_pb2.ErrorReason | None:
    """Returns the name of why probabilities are withheld."""
    return _value(reason, "ERROR_REASON_") if reason else None


def degradations_to_proto(
    degradations: Iterable[DegradationKind],
) -> list[search_service_pb2.Degradation]:
    """Returns the names of the ways in which an answer is degraded."""
    return [_value(each, "DEGRADATION_") for each in degradations]


def neighbours_to_proto(summary: NeighbourSummary) -> search_service_pb2.NeighbourSummary:
    """Returns the message of what the neighbour model scored."""
    return search_service_pb2.NeighbourSummary(
        scored_count=summary.scored_count,
        stop=_value(summary.stop, "NEIGHBOUR_STOP_"),
        neighbour_model=summary.neighbour_model,
        missing_shards=missing_to_proto(summary.missing_shards),
    )


def explanation_to_proto(explanation: Explanation) -> search_service_pb2.Explanation:
    """Returns the message of an explanation."""
    return search_service_pb2.Explanation(
        terms=[
            search_service_pb2.ScoreTerm(name=term.name, value=term.value, weight=term.weight)
            for term in explanation.terms
        ],
        ranks=[
            search_service_pb2.StageRank(stage=stage, rank=rank)
            for stage, rank in explanation.ranks.items()
        ],
    )


def text_use_to_proto(text_use: TextUse) -> content_pb2.TextUse:
    """Returns the message of how much of a text the model read."""
    return content_pb2.TextUse(
        token_count=text_use.token_count,
        used_token_count=text_use.used_token_count,
        truncated=text_use.is_truncated,
    )


def modality_from_proto(value: content_pb2.Modality | int) -> Modality | None:
    """Returns the modality; None if it is unspecified or unknown."""
    return _MODALITIES.get(value)


def modality_to_proto(modality: Modality) -> content_pb2.Modality:
    """Returns the value for `modality`."""
    return _MODALITY_TO_PROTO[modality]


def item_error_to_proto(error: TandemError) -> error_reason_pb2.ItemError:
    """Returns the message with the reason why one item of a batch failed."""
    reason = f"ERROR_REASON_{error.reason}"
    return error_reason_pb2.ItemError(reason=reason, message=error.message)


def content_from_proto(message: content_pb2.Content) -> Content:
    """Returns the content; raises `ContentMissing` if none is set, or `RegionsInvalid`."""
    match message.WhichOneof("data"):
        case "text":
            return TextContent(message.text)
        case "image":
            return ImageContent(message.image)
        case "regions":
            return regions_from_proto(message.regions)
        case _:
            raise ContentMissing


def content_to_proto(content: Content) -> content_pb2.Content:
    """Returns the message for `content`."""
    if isinstance(content, TextContent):
        return content_pb2.Content(text=content.text)
    if isinstance(content, RegionContent):
        return content_pb2.Content(regions=regions_to_proto(content))
    return content_pb2.Content(image=content.image_bytes)


def _retrieval(retrieval: ShardRetrieval) -> search_service_pb2.ShardRetrieval:
    return search_service_pb2.ShardRetrieval(
        shard_number=retrieval.shard_number,
        modality=_MODALITY_TO_PROTO[retrieval.modality] if retrieval.modality else None,
        path=path_to_proto(retrieval.path),
        item_count=retrieval.item_count,
        keyword_state=retrieval.keyword_state.value if retrieval.keyword_state else None,
    )


def _ranked_item(item: FoundItem) -> search_service_pb2.RankedItem:
    return search_service_pb2.RankedItem(
        item_id=item.item_id,
        similarity=item.similarity,
        match_logit=item.match_logit,
        match_probability=item.match_probability,
        retrieve_rank=item.retrieve_rank,
        final_rank=item.final_rank,
        content=content_to_proto(item.content) if item.content else None,
        attributes=attributes_to_proto(item.attributes),
        modality=_MODALITY_TO_PROTO[item.modality] if item.modality else None,
        score=item.score,
        explanation=explanation_to_proto(item.explanation) if item.explanation else None,
        neighbour_score=item.neighbour_score,
        ordered_by=f"ORDERING_STAGE_{item.ordered_by}",
        hybrid=hybrid_rank_to_proto(item.hybrid) if item.hybrid else None,
    )


def result_from_proto(
    response: search_service_pb2.SearchItemsResponse, *, is_final: bool = True
) -> SearchResult:
    """Returns the answer of SearchItems."""
    durations = response.durations
    return SearchResult(
        tuple(_found_item(item) for item in response.items),
        response.model_fingerprint,
        StageSeconds(
            encode=duration_from_proto(durations.encode_duration),
            retrieve=duration_from_proto(durations.retrieve_duration),
            rerank=duration_from_proto(durations.rerank_duration),
            fetch=duration_from_proto(durations.fetch_duration),
            total=duration_from_proto(durations.total_duration),
            rank=duration_from_proto(durations.rank_duration),
            neighbours=duration_from_proto(durations.neighbours_duration),
        ),
        coverage_from_proto(response.coverage),
        rerank_from_proto(response.rerank),
        degradations_from_proto(response.degradations),
        tuple(map(text_use_from_proto, response.text_uses)),
        cost_from_proto(response.cost),
        response.next_cursor,
        model_version=response.model_version,
        retrievals=tuple(
            ShardRetrieval(
                each.shard_number,
                _MODALITIES.get(each.modality),
                path_from_proto(each.path),
                each.item_count,
                KeywordState(each.keyword_state) if each.keyword_state else None,
            )
            for each in response.retrievals
        ),
        is_final=is_final,
        neighbours=neighbours_from_proto(response.neighbours)
        if response.HasField("neighbours")
        else None,
    )


def streamed_result(response: search_service_pb2.StreamSearchItemsResponse) -> SearchResult:
    """Returns one of the two responses of StreamSearchItems."""
    is_final = response.phase != search_service_pb2.SEARCH_PHASE_RETRIEVED
    return result_from_proto(response.answer, is_final=is_final)


def batch_results(
    response: search_service_pb2.BatchSearchItemsResponse,
    errors: Sequence[TandemError | None],
    target: str,
) -> list[SearchResult | TandemError]:
    """Returns the outcomes of a batch, with the errors of searches that were not sent.

    Raises ServerUnknown if the answer has another number of searches.
    """
    if len(response.results) != len(errors):
        raise ServerUnknown(
            target=target,
            why=f"it answered {len(response.results)} results of {len(errors)} searches",
        )
    return [
        error or _batch_result(result)
        for error, result in zip(errors, response.results, strict=True)
    ]


def _batch_result(result: search_service_pb2.BatchSearchResult) -> SearchResult | TandemError:
    if result.WhichOneof("outcome") == "error":
        return item_error(result.error)
    return result_from_proto(result.response)


def removal(response: search_service_pb2.RemoveItemsResponse) -> Removal:
    """Returns the answer of RemoveItems."""
    return Removal(response.removed_count, response.consistency_token)


def index_removal(response: search_service_pb2.RemoveIndexResponse) -> Removal:
    """Returns the answer of RemoveIndex."""
    return Removal(response.removed_count, response.consistency_token, response.is_complete)


def coverage_from_proto(coverage: search_service_pb2.Coverage) -> Coverage:
    """Returns the coverage of an answer."""
    return Coverage(
        answered_shard_count=coverage.answered_shard_count,
        shard_count=coverage.shard_count,
        covered_item_count=coverage.covered_item_count,
        item_count=coverage.item_count if coverage.HasField("item_count") else None,
        missing_shards=missing_from_proto(coverage.missing_shards),
    )


def degradations_from_proto(values: Iterable[int]) -> tuple[DegradationKind, ...]:
    """Returns the ways in which an answer is degraded."""
    return tuple(
        DegradationKind(_name(search_service_pb2.Degradation, value, "DEGRADATION_"))
        for value in values
    )


def neighbours_from_proto(summary: search_service_pb2.NeighbourSummary) -> NeighbourSummary:
    """Returns what the neighbour model scored."""
    return NeighbourSummary(
        summary.scored_count,
        NeighbourStopReason(
            _name(search_service_pb2.NeighbourStop, summary.stop, "NEIGHBOUR_STOP_")
        ),
        summary.neighbour_model,
        missing_from_proto(summary.missing_shards),
    )


def missing_from_proto(
    missing: Iterable[search_service_pb2.MissingShard],
) -> Mapping[int, ErrorReason]:
    """Returns why each shard did not answer, by its number."""
    return {each.shard_number: ErrorReason(_reason(each.reason)) for each in missing}


def text_use_from_proto(use: content_pb2.TextUse) -> TextUse:
    """Returns how much of a text the model read."""
    return TextUse(use.token_count, use.used_token_count)


def item_error(error: error_reason_pb2.ItemError) -> TandemError:
    """Returns the named error of one element of a batch."""
    return error_from_reason(_reason(error.reason), error.message, {})


def withheld(value: int) -> ErrorReason | None:
    """Returns why probabilities are withheld; None for 0."""
    return ErrorReason(_reason(value)) if value else None


def _reason(value: int) -> str:
    return _name(error_reason_pb2.ErrorReason, value, "ERROR_REASON_")


def _value(name: str, prefix: str) -> Any:  # noqa: ANN401 (of any enum)
    """Returns the value of a name, which is a number where only a newer server knows it."""
    return int(name) if name.lstrip("-").isdigit() else f"{prefix}{name}"


def _name(names: _Names, value: int, prefix: str) -> str:
    try:
        return names.Name(value).removeprefix(prefix)
    except ValueError:  # A value of a newer server.
        return str(value)


def _found_item(item: search_service_pb2.RankedItem) -> FoundItem:
    return FoundItem(
        item_id=item.item_id,
        similarity=item.similarity,
        match_logit=item.match_logit if item.HasField("match_logit") else None,
        match_probability=item.match_probability if item.HasField("match_probability") else None,
        retrieve_rank=item.retrieve_rank,
        final_rank=item.final_rank,
        content=_content(item.content) if item.HasField("content") else None,
        attributes=_attributes(item.attributes),
        modality=_MODALITIES.get(item.modality),
        score=item.score,
        explanation=explanation_from_proto(item.explanation)
        if item.HasField("explanation")
        else None,
        neighbour_score=item.neighbour_score if item.HasField("neighbour_score") else None,
        hybrid=hybrid_rank_from_proto(item.hybrid) if item.HasField("hybrid") else None,
        ordered_by=_ordered_by(item.ordered_by),
    )


def _ordered_by(value: int) -> OrderedBy:
    if not value:
        return OrderedBy.UNSPECIFIED
    return OrderedBy(_name(search_service_pb2.OrderingStage, value, "ORDERING_STAGE_"))


def explanation_from_proto(message: search_service_pb2.Explanation) -> Explanation:
    """Returns why an item ranks where it does."""
    return Explanation(
        tuple(ScoreTerm(term.name, term.value, term.weight) for term in message.terms),
        {each.stage: each.rank for each in message.ranks},
    )


def _attributes(messages: Mapping[str, attribute_pb2.AttributeValue]) -> Attributes:
    values = ((name, value_from_proto(message)) for name, message in sorted(messages.items()))
    # None is a value whose type only a newer server knows.
    return {name: value for name, value in values if value is not None}


def _content(content: content_pb2.Content) -> Content | None:
    match content.WhichOneof("data"):
        case "text":
            return TextContent(content.text)
        case "image":
            return ImageContent(content.image)
        case "regions":
            return regions_from_proto(content.regions)
        case _:
            return None
