"""Describes an index on one shard (`tandem.v1.IndexPart`). Pure Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tandem.contract.modality import Modality
from tandem.contract.same_fields import of_same_fields, same_fields
from tandem.contract.search_path import NO_FALLBACK, Fallback, KeywordState, SearchFallback
from tandem.v1 import content_pb2, search_service_pb2
from tandem.v1 import index_service_pb2 as pb

_TO_PROTO: Mapping[Modality, content_pb2.Modality] = {
    Modality.TEXT: content_pb2.MODALITY_TEXT,
    Modality.IMAGE: content_pb2.MODALITY_IMAGE,
}
_FROM_PROTO: Mapping[int, Modality] = {value: each for each, value in _TO_PROTO.items()}


@dataclass(frozen=True, slots=True)
class DirectionRecall:
    """The share of the truly nearest items that searches of one direction found."""

    query_modality: Modality
    target_modality: Modality
    recall: float
    """0 to 1."""
    search_count: int
    """The searches that were repeated with an exact scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPart:
    """The texts, or the images, of an index on one shard."""

    modality: Modality
    item_count: int
    dead_row_count: int = 0
    """Rows of items that were replaced or deleted since the last compaction."""
    tail_row_count: int = 0
    """Rows that are not yet in the FAISS index; searches scan them."""
    index_type: str = "Flat"
    """The FAISS index that is searched; "Flat" for an exact scan."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """The search parameters in use, by FAISS's names."""
    device: str = "cpu"
    fallback: Fallback = NO_FALLBACK
    """Why searches do not use the configured index type."""
    activity: str = ""
    """The background work; empty for none."""
    index_bytes: int = 0
    """Of FAISS's codes, without the embeddings."""
    recall_target: float = 0.0
    built_recall: float | None = None
    """The recall at 20, 0 to 1, measured when the FAISS index was built or tuned."""
    list_imbalance: float | None = None
    """FAISS's imbalance factor of the inverted lists; 1 is balanced."""
    live_recalls: Sequence[DirectionRecall] = ()
    """Of searches for items of this part."""


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """An index on one shard."""

    shard_number: int
    parts: Sequence[IndexPart]
    keyword_state: KeywordState
    """Whether this shard can search by words."""

    @property
    def is_rebuilding(self) -> bool:
        """Returns whether an exact scan replaces an index that is being built."""
        return any(part.fallback.kind is SearchFallback.BEING_BUILT for part in self.parts)


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """An index with its model and its items."""

    index_id: str
    model_fingerprint: str
    text_count: int
    image_count: int

    def __add__(self, other: IndexSummary) -> IndexSummary:
        """Returns this index with the items of another shard's part of it."""
        return replace(
            self,
            text_count=self.text_count + other.text_count,
            image_count=self.image_count + other.image_count,
        )


def summary_to_proto(summary: IndexSummary) -> pb.IndexSummary:
    return pb.IndexSummary(**same_fields(summary))


def summary_from_proto(message: pb.IndexSummary) -> IndexSummary:
    return of_same_fields(IndexSummary, message)


def joined_recalls(recalls: Iterable[DirectionRecall]) -> list[DirectionRecall]:
    """Returns the recall by direction, each weighted by its searches."""
    by_direction: dict[tuple[Modality, Modality], list[DirectionRecall]] = defaultdict(list)
    for each in recalls:
        if each.search_count > 0:
            by_direction[each.query_modality, each.target_modality].append(each)
    joined = []
    for direction in ((query, target) for query in Modality for target in Modality):
        if found := by_direction.get(direction):
            count = sum(each.search_count for each in found)
            recall = sum(each.recall * each.search_count for each in found) / count
            joined.append(DirectionRecall(*direction, recall, count))
    return joined


def recall_to_proto(recall: DirectionRecall) -> pb.DirectionRecall:
    return pb.DirectionRecall(
        query_modality=_TO_PROTO[recall.query_modality],
        target_modality=_TO_PROTO[recall.target_modality],
        recall=recall.recall,
        search_count=recall.search_count,
    )


def recalls_from_proto(messages: Iterable[pb.DirectionRecall]) -> list[DirectionRecall]:
    """Returns the recalls of messages, without modalities that are unknown to this version."""
    return [
        DirectionRecall(
            _FROM_PROTO[each.query_modality],
            _FROM_PROTO[each.target_modality],
            each.recall,
            each.search_count,
        )
        for each in messages
        if each.query_modality in _FROM_PROTO and each.target_modality in _FROM_PROTO
    ]


def part_to_proto(part: IndexPart) -> pb.IndexPart:
    same = same_fields(part) | {
        "modality": _TO_PROTO[part.modality],
        "fallback": part.fallback.kind.value,
        "live_recalls": map(recall_to_proto, part.live_recalls),
    }
    return pb.IndexPart(**same, fallback_reason=part.fallback.why)


def parts_from_proto(messages: Iterable[pb.IndexPart]) -> list[IndexPart]:
    """Returns the parts of messages, without modalities that are unknown to this version."""
    return [
        replace(
            of_same_fields(IndexPart, each),
            modality=_FROM_PROTO[each.modality],
            parameters=dict(each.parameters),
            fallback=Fallback(SearchFallback(each.fallback), each.fallback_reason),
            live_recalls=recalls_from_proto(each.live_recalls),
        )
        for each in messages
        if each.modality in _FROM_PROTO
    ]


def shard_index_to_proto(shard: ShardIndex) -> search_service_pb2.ShardIndex:
    return search_service_pb2.ShardIndex(
        shard_number=shard.shard_number,
        parts=map(part_to_proto, shard.parts),
        keyword_state=shard.keyword_state.value,
    )


def shard_index_from_proto(message: search_service_pb2.ShardIndex) -> ShardIndex:
    return ShardIndex(
        message.shard_number,
        parts_from_proto(message.parts),
        KeywordState(message.keyword_state),
    )
