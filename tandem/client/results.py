"""What the SDK's calls give back: the contract's answers as plain Python."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from tandem.attribute_wire import value_from_proto
from tandem.attributes import Attributes
from tandem.content import Content, ImageContent, TextContent, TextUse
from tandem.errors import TandemError, error_from_reason
from tandem.v1 import attribute_pb2, content_pb2, error_reason_pb2, search_service_pb2

_REASON_PREFIX = "ERROR_REASON_"


@dataclass(frozen=True, slots=True)
class FoundItem:
    """One item of a search."""

    item_id: str
    similarity: float
    """The bi-encoder's cosine, -1 to 1."""
    match_logit: float | None
    """The cross-encoder's log odds of a match; None where it did not score."""
    match_probability: float | None
    retrieve_rank: int
    """Place in the bi-encoder's order, from 1."""
    final_rank: int
    """Place in the answer, from 1."""
    content: Content | None
    """None unless the search asked for contents."""
    attributes: Attributes = field(default_factory=dict)
    """Empty unless the search asked for contents."""


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Where the time of a search went, as the orchestrator saw it."""

    encode: float
    retrieve: float
    rerank: float
    fetch: float
    total: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the index was searched."""

    answered_shard_count: int
    shard_count: int
    covered_item_count: int
    """Items, of the wanted modality, on the shards that answered."""
    item_count: int | None
    """Those, and what the others had when they last answered; None if one never did."""
    missing_shards: Mapping[int, str]
    """By number, the reason why a shard did not answer, for example "DEADLINE_EXCEEDED"."""

    @property
    def is_full(self) -> bool:
        """Whether every shard answered: otherwise items may be missing from the result."""
        return not self.missing_shards


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The items found, best first."""

    items: tuple[FoundItem, ...]
    model_fingerprint: str
    seconds: StageSeconds
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """What became of one item: stored durably, unless there is an error."""

    item_id: str
    error: TandemError | None
    consistency_token: str = ""
    """A search that is given it sees this item and all that the same ingest stored before it."""
    text_use: TextUse | None = None
    """Of a text that was stored: how many of its tokens the model read."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Items are gone."""

    removed_count: int
    """How many of the ids were there."""
    consistency_token: str
    """A search that is given it does not see them."""


def search_result(response: search_service_pb2.SearchItemsResponse) -> SearchResult:
    """Returns the answer of SearchItems."""
    durations = response.durations
    return SearchResult(
        tuple(_found_item(item) for item in response.items),
        response.model_fingerprint,
        StageSeconds(
            encode=_seconds(durations.encode_duration),
            retrieve=_seconds(durations.retrieve_duration),
            rerank=_seconds(durations.rerank_duration),
            fetch=_seconds(durations.fetch_duration),
            total=_seconds(durations.total_duration),
        ),
        _coverage(response.coverage),
    )


def ingest_outcomes(response: search_service_pb2.IngestItemsResponse) -> Iterator[IngestOutcome]:
    """Yields the outcomes of one batch, in its order."""
    for result in response.results:
        error = None
        if result.HasField("error"):
            error = error_from_reason(_reason(result.error.reason), result.error.message, {})
        use = None
        if result.HasField("text_use"):
            use = TextUse(result.text_use.token_count, result.text_use.used_token_count)
        yield IngestOutcome(result.item_id, error, response.consistency_token, use)


def removal(response: search_service_pb2.RemoveItemsResponse) -> Removal:
    """Returns the answer of RemoveItems."""
    return Removal(response.removed_count, response.consistency_token)


def _coverage(coverage: search_service_pb2.Coverage) -> Coverage:
    return Coverage(
        answered_shard_count=coverage.answered_shard_count,
        shard_count=coverage.shard_count,
        covered_item_count=coverage.covered_item_count,
        item_count=coverage.item_count if coverage.HasField("item_count") else None,
        missing_shards={
            missing.shard_number: _reason(missing.reason) for missing in coverage.missing_shards
        },
    )


def _reason(value: int) -> str:
    try:
        return error_reason_pb2.ErrorReason.Name(value).removeprefix(_REASON_PREFIX)
    except ValueError:  # one that a newer server knows
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
    )


def _attributes(messages: Mapping[str, attribute_pb2.AttributeValue]) -> Attributes:
    values = ((name, value_from_proto(message)) for name, message in sorted(messages.items()))
    # None is a value of a type that a newer server knows.
    return {name: value for name, value in values if value is not None}


def _content(content: content_pb2.Content) -> Content | None:
    match content.WhichOneof("data"):
        case "text":
            return TextContent(content.text)
        case "image":
            return ImageContent(content.image)
        case _:
            return None


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos * 1e-9
