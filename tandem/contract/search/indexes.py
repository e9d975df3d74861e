"""Defines what is said of the indexes that there are, and converts it from and to messages.

Pure Python, because the SDK uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.contract.index_description import (
    DirectionRecall,
    IndexSummary,
    ShardIndex,
    recall_to_proto,
    recalls_from_proto,
    shard_index_from_proto,
    shard_index_to_proto,
    summary_from_proto,
    summary_to_proto,
)
from tandem.contract.modality import Modality
from tandem.contract.search.answer import Coverage
from tandem.contract.search.answer_names import DegradationKind, ErrorReason
from tandem.contract.search.answer_wire import (
    coverage_from_proto,
    coverage_to_proto,
    degradations_from_proto,
    degradations_to_proto,
    missing_from_proto,
    missing_to_proto,
)
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


def description_to_proto(description: IndexDescription) -> pb.DescribeIndexResponse:
    """Returns the answer of DescribeIndex."""
    return pb.DescribeIndexResponse(
        model_fingerprint=description.model_fingerprint,
        embedding_dimension=description.embedding_dimension,
        shards=map(shard_index_to_proto, description.shards),
        live_recalls=map(recall_to_proto, description.live_recalls),
        coverage=coverage_to_proto(description.coverage),
        degradations=degradations_to_proto(description.degradations),
    )


def description_from_proto(response: pb.DescribeIndexResponse) -> IndexDescription:
    """Returns the answer of DescribeIndex."""
    return IndexDescription(
        response.model_fingerprint,
        response.embedding_dimension,
        tuple(map(shard_index_from_proto, response.shards)),
        tuple(recalls_from_proto(response.live_recalls)),
        coverage_from_proto(response.coverage),
        degradations_from_proto(response.degradations),
    )


def page_to_proto(page: IndexPage) -> pb.ListIndexesResponse:
    """Returns the answer of ListIndexes."""
    return pb.ListIndexesResponse(
        indexes=map(summary_to_proto, page.indexes),
        next_page_token=page.last,
        missing_shards=missing_to_proto(page.missing_shards),
    )


def page_from_proto(response: pb.ListIndexesResponse) -> IndexPage:
    """Returns the answer of ListIndexes."""
    return IndexPage(
        tuple(map(summary_from_proto, response.indexes)),
        response.next_page_token,
        missing_from_proto(response.missing_shards),
    )
