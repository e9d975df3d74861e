"""Defines what is said of the indexes that there are, and converts it from and to messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.contract.index_description import (
    RECALLS_WIRE,
    SHARD_INDEX_WIRE,
    SUMMARY_WIRE,
    DirectionRecall,
    IndexSummary,
    ShardIndex,
)
from tandem.contract.modality import Modality
from tandem.contract.record_wire import RecordWire, repeated
from tandem.contract.search.answer import Coverage
from tandem.contract.search.answer_names import DegradationKind, ErrorReason
from tandem.contract.search.answer_wire import COVERAGE_WIRE, DEGRADATIONS_WIRE, MISSING_WIRE
from tandem.v1 import search_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """The state of an index on the shards that answered."""

    model_fingerprint: str
    embedding_dimension: int
    shards: tuple[ShardIndex, ...]
    """By number, without those that never had an item of the index."""
    live_recalls: tuple[DirectionRecall, ...]
    """Of all shards together, by direction; without directions that no recent search had."""
    coverage: Coverage
    """The shards that answered, and the items of both modalities on them."""
    degradations: tuple[DegradationKind, ...] = ()
    """SHARDS_MISSING and SHARD_REBUILDING; empty if neither applies."""

    def item_count(self, modality: Modality) -> int:
        """Returns the number of texts, or of images, on the shards that answered."""
        parts = (part for shard in self.shards for part in shard.parts)
        return sum(part.item_count for part in parts if part.modality is modality)


@dataclass(frozen=True, slots=True)
class IndexListing:
    """The indexes that the caller may search."""

    indexes: tuple[IndexSummary, ...]
    """By id, with the items on the shards that answered."""
    missing_shards: Mapping[int, ErrorReason] = field(default_factory=dict)
    """Why a shard did not answer, by its number."""


@dataclass(frozen=True, slots=True)
class IndexPage:
    """Holds some of the indexes, in byte order."""

    indexes: tuple[IndexSummary, ...]
    last: str = ""
    """The id after which there may be more; empty if there are none."""
    missing_shards: Mapping[int, ErrorReason] = field(default_factory=dict)
    """Why a shard did not answer, by its number."""


DESCRIPTION_WIRE = RecordWire(
    IndexDescription,
    pb.DescribeIndexResponse,
    shards=repeated(SHARD_INDEX_WIRE),
    live_recalls=RECALLS_WIRE,
    coverage=COVERAGE_WIRE,
    degradations=DEGRADATIONS_WIRE,
)
PAGE_WIRE = RecordWire(
    IndexPage,
    pb.ListIndexesResponse,
    indexes=repeated(SUMMARY_WIRE),
    last="next_page_token",
    missing_shards=MISSING_WIRE,
)
