"""Converts the contract's answers into plain Python."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tandem.client.answer_names import (
    DegradationKind,
    ErrorReason,
    NeighbourStopReason,
    OrderedBy,
    RerankStopReason,
)
from tandem.contract.attribute_wire import value_from_proto
from tandem.contract.attributes import Attributes
from tandem.contract.content import Content, ImageContent, Modality, TextContent, TextUse
from tandem.contract.duration_wire import duration_from_proto
from tandem.contract.hybrid import HybridRank, hybrid_rank_from_proto
from tandem.contract.inference_cost import InferenceCost, cost_from_proto
from tandem.contract.model_description import relevance
from tandem.contract.region_wire import regions_from_proto
from tandem.contract.search_path import KeywordState, ShardRetrieval, path_from_proto
from tandem.errors import ServerUnknown, TandemError, error_from_reason
from tandem.v1 import attribute_pb2, content_pb2, error_reason_pb2, search_service_pb2

_MODALITIES: Mapping[int, Modality] = {
    content_pb2.MODALITY_TEXT: Modality.TEXT,
    content_pb2.MODALITY_IMAGE: Modality.IMAGE,
}


class _Names(Protocol):
    """A protobuf enum."""

    def Name(self, number: int) -> str:
        """Returns the value's name; raises ValueError for an unknown value."""
        ...


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """One term of a score: `value` times `weight`."""

    name: str
    """For example "similarity" or "match_logit"."""
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an item ranks where it does."""

    terms: tuple[ScoreTerm, ...]
    """The terms that sum to the score."""
    ranks: Mapping[str, int]
    """The rank after each stage, from 1, in the order of the stages."""


@dataclass(frozen=True, slots=True)
class FoundItem:
    """One found item."""

    item_id: str
    similarity: float
    """The bi-encoder's cosine similarity, -1 to 1."""
    match_logit: float | None
    """The cross-encoder's logit; None if it did not score the item."""
    match_probability: float | None
    """0 to 1; None if it did not score the item, or was not calibrated."""
    retrieve_rank: int
    """The rank in bi-encoder order, from 1."""
    final_rank: int
    """The rank in the answer, from 1."""
    content: Content | None
    """None unless content_included is set."""
    attributes: Attributes = field(default_factory=dict)
    """Empty unless content_included or attributes_included is set."""
    modality: Modality | None = None
    """None if unknown."""
    score: float = 0.0
    """The sort key among the items that were reranked in the same way."""
    explanation: Explanation | None = None
    """None unless explained is set."""
    neighbour_score: float | None = None
    """The neighbour model's score, -1 to 1; None if it did not score the item."""
    hybrid: HybridRank | None = None
    """The item's places in the two lists of a hybrid search; None in any other."""
    ordered_by: OrderedBy = OrderedBy.UNSPECIFIED
    """The stage that gave the score; UNSPECIFIED, which is "", from a server that does not say."""

    @property
    def relevance(self) -> float:
        """The match on a scale of 0 to 1, or the similarity of an item that was not reranked.

        It is a probability only where `match_probability` is set.
        """
        if self.match_logit is None:
            return self.similarity
        return relevance(self.match_logit, self.match_probability)


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """The time of each stage, measured by the orchestrator."""

    encode: float
    retrieve: float
    rerank: float
    fetch: float
    total: float
    rank: float = 0.0
    """Fusion, diversity and cursors."""
    neighbours: float = 0.0
    """Finding neighbours and scoring with the neighbour model."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the index was searched."""

    answered_shard_count: int
    shard_count: int
    covered_item_count: int
    """The items of the target modality on the shards that answered."""
    item_count: int | None
    """The same with the missing shards' last known counts; None if one never answered."""
    missing_shards: Mapping[int, ErrorReason]
    """The reason of each missing shard, by its number."""

    @property
    def is_full(self) -> bool:
        """Returns whether every shard answered; otherwise items may be missing."""
        return not self.missing_shards


@dataclass(frozen=True, slots=True)
class RerankSummary:
    """How deep the cross-encoder got, and why no deeper."""

    reranked_depth: int = 0
    """Candidates, from the first in retrieval order, that it was given."""
    stop: RerankStopReason = RerankStopReason.UNSPECIFIED
    """Why it ended there."""
    missing_count: int = 0
    """Of these, items that were no longer there, or had nothing it could read."""
    reranker: str = ""
    """The cross-encoder: a fingerprint, or a remote one's name with a digest of its settings."""
    probability_withheld: ErrorReason | None = None
    """Why scored items have no `match_probability`: UNCALIBRATED; None if nothing is withheld."""


@dataclass(frozen=True, slots=True)
class NeighbourSummary:
    """What the neighbour model scored, and why it stopped."""

    scored_count: int
    """Items, from the first."""
    stop: NeighbourStopReason
    """Why it stopped."""
    neighbour_model: str
    """The fingerprint of the model that scored them; empty if none did."""
    missing_shards: Mapping[int, ErrorReason]
    """The reason of each shard whose items are not among the neighbours, by its number."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The items found, best first."""

    items: tuple[FoundItem, ...]
    model_fingerprint: str
    seconds: StageSeconds
    coverage: Coverage
    rerank: RerankSummary = field(default_factory=RerankSummary)
    degradations: tuple[DegradationKind, ...] = ()
    """How the answer is degraded; empty if it is not."""
    text_uses: tuple[TextUse, ...] = ()
    """How much of each query text the model read."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    next_cursor: bytes = b""
    """Pass it to `search_page` for the next items; empty if there are none."""
    model_version: int = 0
    """The model version that encoded the query and scored the items; 0 if no model ran."""
    retrievals: tuple[ShardRetrieval, ...] = ()
    """How each shard searched: the planner's choice and its reason; empty on pages of a cursor."""
    is_final: bool = True
    """False for the first answer of a stream, in bi-encoder order."""
    neighbours: NeighbourSummary | None = None
    """None unless neighbours_enabled is set."""

    @property
    def is_degraded(self) -> bool:
        """Returns whether the answer is degraded."""
        return bool(self.degradations)

    @property
    def why_empty(self) -> str:
        """Returns in words why there are no items; empty if there are some."""
        if self.items:
            return ""
        if self.coverage.covered_item_count:
            return "no item fits: a filter or a limit of the search left all out"
        return (
            "the index has no item of the searched modality: a text finds images and an image "
            "finds texts, unless target_modality or all_modalities_included is set"
        )


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """The outcome of one item: it is stored durably, unless there is an error."""

    item_id: str
    error: TandemError | None
    consistency_token: str = ""
    """Pass it to a search that must see this item and the earlier ones of the same ingest."""
    text_use: TextUse | None = None
    """For a stored text: how much of it the model read."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome of a removal."""

    removed_count: int
    """The number of ids that existed."""
    consistency_token: str
    """Pass it to a search that must not see them."""
    is_complete: bool = True
    """Whether the index is gone; otherwise repeat the call."""


def search_result(
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
        RerankSummary(
            response.rerank.reranked_depth,
            RerankStopReason(
                _name(search_service_pb2.RerankStop, response.rerank.stop, "RERANK_STOP_")
            ),
            response.rerank.missing_count,
            response.rerank.reranker,
            withheld(response.rerank.probability_withheld),
        ),
        degradations_from_proto(response.degradations),
        tuple(TextUse(use.token_count, use.used_token_count) for use in response.text_uses),
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
        neighbours=_neighbours(response.neighbours) if response.HasField("neighbours") else None,
    )


def streamed_result(response: search_service_pb2.StreamSearchItemsResponse) -> SearchResult:
    """Returns one of the two responses of StreamSearchItems."""
    is_final = response.phase != search_service_pb2.SEARCH_PHASE_RETRIEVED
    return search_result(response.answer, is_final=is_final)


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
    return search_result(result.response)


def ingest_outcomes(response: search_service_pb2.IngestItemsResponse) -> Iterator[IngestOutcome]:
    """Yields the outcomes of one batch in order."""
    for result in response.results:
        error = item_error(result.error) if result.HasField("error") else None
        text_use = None
        if result.HasField("text_use"):
            text_use = TextUse(result.text_use.token_count, result.text_use.used_token_count)
        yield IngestOutcome(result.item_id, error, response.consistency_token, text_use)


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


def _neighbours(summary: search_service_pb2.NeighbourSummary) -> NeighbourSummary:
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


def item_error(error: error_reason_pb2.ItemError) -> TandemError:
    """Returns the named error of one element of a batch."""
    return error_from_reason(_reason(error.reason), error.message, {})


def withheld(value: int) -> ErrorReason | None:
    """Returns why probabilities are withheld; None for 0."""
    return ErrorReason(_reason(value)) if value else None


def _reason(value: int) -> str:
    return _name(error_reason_pb2.ErrorReason, value, "ERROR_REASON_")


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
        explanation=_explanation(item.explanation) if item.HasField("explanation") else None,
        neighbour_score=item.neighbour_score if item.HasField("neighbour_score") else None,
        hybrid=hybrid_rank_from_proto(item.hybrid) if item.HasField("hybrid") else None,
        ordered_by=_ordered_by(item.ordered_by),
    )


def _ordered_by(value: int) -> OrderedBy:
    if not value:
        return OrderedBy.UNSPECIFIED
    return OrderedBy(_name(search_service_pb2.OrderingStage, value, "ORDERING_STAGE_"))


def _explanation(message: search_service_pb2.Explanation) -> Explanation:
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
