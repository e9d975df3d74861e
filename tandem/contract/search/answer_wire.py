"""Converts answers of searches and writes from and to messages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from tandem.contract.content import Content, ImageContent, TextContent, TextUse
from tandem.contract.field_wire import DURATION_WIRE, MODALITY_WIRE
from tandem.contract.filtering.attribute_wire import attributes_to_proto, value_from_proto
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.fusion import HYBRID_RANK_WIRE
from tandem.contract.inference_cost import COST_WIRE
from tandem.contract.record_wire import Field, RecordWire, or_none, repeated
from tandem.contract.regions import RegionContent, regions_from_proto, regions_to_proto
from tandem.contract.search.answer import (
    Abstention,
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
    NamedAnswer,
    NeighbourStopReason,
    OrderedBy,
    RerankStopReason,
)
from tandem.contract.search_path import RETRIEVAL_WIRE
from tandem.errors import ContentMissing, ServerUnknown, TandemError, error_from_reason
from tandem.v1 import attribute_pb2, content_pb2, error_reason_pb2
from tandem.v1 import search_service_pb2 as pb

_Name = TypeVar("_Name", bound=NamedAnswer)


def _named(kind: type[_Name], names: EnumTypeWrapper, prefix: str) -> Field[_Name, _Name]:
    """Returns how a name travels, which is a number where only a newer server knows it."""

    def read(value: int) -> _Name:
        try:
            return kind(names.Name(value).removeprefix(prefix))
        except ValueError:
            return kind(str(value))

    return Field(lambda name: int(name) if name.lstrip("-").isdigit() else f"{prefix}{name}", read)


REASON_WIRE = _named(ErrorReason, error_reason_pb2.ErrorReason, "ERROR_REASON_")
WITHHELD_WIRE = or_none(REASON_WIRE)
"""Why probabilities are withheld."""
_DEGRADATION_WIRE = _named(DegradationKind, pb.Degradation, "DEGRADATION_")
DEGRADATIONS_WIRE = repeated(_DEGRADATION_WIRE)
_ORDERING_STAGE_WIRE = _named(OrderedBy, pb.OrderingStage, "ORDERING_STAGE_")


def missing_to_proto(missing: Mapping[int, ErrorReason]) -> list[pb.MissingShard]:
    """Returns the messages of the shards that did not answer."""
    return [
        pb.MissingShard(shard_number=number, reason=REASON_WIRE.to_proto(reason))
        for number, reason in missing.items()
    ]


def missing_from_proto(missing: Iterable[pb.MissingShard]) -> Mapping[int, ErrorReason]:
    """Returns why each shard did not answer, by its number."""
    return {each.shard_number: REASON_WIRE.from_proto(each.reason) for each in missing}


MISSING_WIRE = Field(missing_to_proto, missing_from_proto)
COVERAGE_WIRE = RecordWire(Coverage, pb.Coverage, missing_shards=MISSING_WIRE)
RERANK_WIRE = RecordWire(
    RerankSummary,
    pb.RerankSummary,
    stop=_named(RerankStopReason, pb.RerankStop, "RERANK_STOP_"),
    probability_withheld=WITHHELD_WIRE,
)
NEIGHBOURS_WIRE = RecordWire(
    NeighbourSummary,
    pb.NeighbourSummary,
    stop=_named(NeighbourStopReason, pb.NeighbourStop, "NEIGHBOUR_STOP_"),
    missing_shards=MISSING_WIRE,
)
EXPLANATION_WIRE = RecordWire(
    Explanation,
    pb.Explanation,
    terms=repeated(RecordWire(ScoreTerm, pb.ScoreTerm)),
    ranks=Field[Mapping[str, int], Mapping[str, int]](
        lambda ranks: [pb.StageRank(stage=stage, rank=rank) for stage, rank in ranks.items()],
        lambda messages: {each.stage: each.rank for each in messages},
    ),
)
_TEXT_USE_WIRE = RecordWire(TextUse, content_pb2.TextUse)
TEXT_USE_WIRE = Field[TextUse, TextUse](
    lambda use: _TEXT_USE_WIRE.to_proto(use, truncated=use.is_truncated), _TEXT_USE_WIRE.from_proto
)


def item_error_to_proto(error: TandemError) -> error_reason_pb2.ItemError:
    """Returns the message with the reason why one item of a batch failed."""
    reason = f"ERROR_REASON_{error.reason}"
    return error_reason_pb2.ItemError(reason=reason, message=error.message)


def item_error(error: error_reason_pb2.ItemError) -> TandemError:
    """Returns the named error of one element of a batch, also for an unknown reason."""
    return error_from_reason(REASON_WIRE.from_proto(error.reason), error.message, {})


ITEM_ERROR_WIRE = Field(item_error_to_proto, item_error)


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


CONTENT_WIRE = Field(content_to_proto, content_from_proto)


def _content(message: content_pb2.Content) -> Content | None:
    """Returns the content of an answer; None for a kind that only a newer server knows."""
    return content_from_proto(message) if message.WhichOneof("data") else None


def _attributes(messages: Mapping[str, attribute_pb2.AttributeValue]) -> Attributes:
    values = ((name, value_from_proto(message)) for name, message in sorted(messages.items()))
    # None is a value whose type only a newer server knows.
    return {name: value for name, value in values if value is not None}


_FOUND_ITEM_WIRE = RecordWire(
    FoundItem,
    pb.RankedItem,
    content=Field(content_to_proto, _content),
    attributes=Field(attributes_to_proto, _attributes),
    modality=MODALITY_WIRE,
    explanation=EXPLANATION_WIRE,
    hybrid=HYBRID_RANK_WIRE,
    ordered_by=Field[OrderedBy, OrderedBy](
        _ORDERING_STAGE_WIRE.to_proto,
        lambda value: _ORDERING_STAGE_WIRE.from_proto(value) if value else OrderedBy.UNSPECIFIED,
    ),
)
_DURATIONS: dict[str, Any] = {
    each.name: DURATION_WIRE.named(f"{each.name}_duration") for each in fields(StageSeconds)
}
_SECONDS_WIRE = RecordWire(StageSeconds, pb.StageDurations, **_DURATIONS)
_RESULT_WIRE = RecordWire(
    SearchResult,
    pb.SearchItemsResponse,
    own=["seconds", "cost", "is_final"],
    items=repeated(_FOUND_ITEM_WIRE),
    coverage=COVERAGE_WIRE,
    rerank=RERANK_WIRE,
    degradations=DEGRADATIONS_WIRE,
    text_uses=repeated(TEXT_USE_WIRE),
    retrievals=repeated(RETRIEVAL_WIRE),
    neighbours=NEIGHBOURS_WIRE,
    abstention=RecordWire(Abstention, pb.Abstention),
)


def result_to_proto(result: SearchResult) -> pb.SearchItemsResponse:
    """Returns the answer of SearchItems."""
    durations = _SECONDS_WIRE.to_proto(result.seconds)
    # A page of a cursor encodes, searches and scores nothing.
    is_page = not result.seconds.encode
    for stage in ("encode", "retrieve", "rerank") if is_page else ():
        durations.ClearField(f"{stage}_duration")
    if is_page or not result.neighbours:
        durations.ClearField("neighbours_duration")
    cost = None if is_page else COST_WIRE.to_proto(result.cost)
    return _RESULT_WIRE.to_proto(result, durations=durations, cost=cost)


def result_from_proto(response: pb.SearchItemsResponse, *, is_final: bool = True) -> SearchResult:
    """Returns the answer of SearchItems."""
    return _RESULT_WIRE.from_proto(
        response,
        seconds=_SECONDS_WIRE.from_proto(response.durations),
        cost=COST_WIRE.from_proto(response.cost),
        is_final=is_final,
    )


def streamed_result(response: pb.StreamSearchItemsResponse) -> SearchResult:
    """Returns one of the two responses of StreamSearchItems."""
    is_final = response.phase != pb.SEARCH_PHASE_RETRIEVED
    return result_from_proto(response.answer, is_final=is_final)


def batch_results(
    response: pb.BatchSearchItemsResponse,
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


def _batch_result(result: pb.BatchSearchResult) -> SearchResult | TandemError:
    if result.WhichOneof("outcome") == "error":
        return item_error(result.error)
    return result_from_proto(result.response)


REMOVAL_WIRE = RecordWire(
    Removal, pb.RemoveItemsResponse, own=["is_complete"], item_ids=Field(list, tuple)
)
INDEX_REMOVAL_WIRE = RecordWire(
    Removal, pb.RemoveIndexResponse, own=["item_ids", "next_page_token"]
)
