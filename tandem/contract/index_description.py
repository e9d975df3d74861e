"""Describes an index on one shard (`tandem.v1.IndexPart`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.modality import Modality
from tandem.contract.record_wire import Field, RecordWire, numbered
from tandem.contract.search_path import (
    NO_FALLBACK,
    Fallback,
    KeywordState,
    SearchFallback,
    fallback_from_proto,
    fallback_to_proto,
)
from tandem.v1 import index_service_pb2 as pb
from tandem.v1 import search_service_pb2


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

    def __add__(self, other: "IndexSummary") -> "IndexSummary":
        """Returns this index with the items of another shard's part of it."""
        return replace(
            self,
            text_count=self.text_count + other.text_count,
            image_count=self.image_count + other.image_count,
        )


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


SUMMARY_WIRE = RecordWire(IndexSummary, pb.IndexSummary)
_RECALL_WIRE = RecordWire(
    DirectionRecall, pb.DirectionRecall, query_modality=MODALITY_WIRE, target_modality=MODALITY_WIRE
)
# A modality of a later version is read as None.
RECALLS_WIRE = Field[Iterable[DirectionRecall], list[DirectionRecall]](
    lambda recalls: map(_RECALL_WIRE.to_proto, recalls),
    lambda messages: [
        each
        for each in map(_RECALL_WIRE.from_proto, messages)
        if None not in (each.query_modality, each.target_modality)
    ],
)
_PART_WIRE = RecordWire(
    IndexPart, pb.IndexPart, own=["fallback"], modality=MODALITY_WIRE, live_recalls=RECALLS_WIRE
)
PARTS_WIRE = Field[Iterable[IndexPart], list[IndexPart]](
    lambda parts: [_PART_WIRE.to_proto(each, **fallback_to_proto(each.fallback)) for each in parts],
    lambda messages: [
        _PART_WIRE.from_proto(each, fallback=fallback_from_proto(each))
        for each in messages
        if MODALITY_WIRE.from_proto(each.modality) is not None
    ],
)
SHARD_INDEX_WIRE = RecordWire(
    ShardIndex,
    search_service_pb2.ShardIndex,
    parts=PARTS_WIRE,
    keyword_state=numbered(KeywordState),
)
