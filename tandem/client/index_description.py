"""Describes and lists indexes: builds the requests, and reads their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.client.answer_names import DegradationKind, ErrorReason
from tandem.client.results import (
    Coverage,
    coverage_from_proto,
    degradations_from_proto,
    missing_from_proto,
)
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import (
    DirectionRecall,
    IndexSummary,
    ShardIndex,
    recalls_from_proto,
    shard_index_from_proto,
    summary_from_proto,
)
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.contract.modality import Modality
from tandem.v1 import search_service_pb2


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


def describe_index_request(
    index_id: str, *, full_coverage_required: bool
) -> search_service_pb2.DescribeIndexRequest:
    """Returns the message; raises IndexIdInvalid."""
    return search_service_pb2.DescribeIndexRequest(
        index_id=check_index_id(index_id), full_coverage_required=full_coverage_required
    )


def index_description(response: search_service_pb2.DescribeIndexResponse) -> IndexDescription:
    """Returns the answer of DescribeIndex."""
    return IndexDescription(
        response.model_fingerprint,
        response.embedding_dimension,
        tuple(map(shard_index_from_proto, response.shards)),
        tuple(recalls_from_proto(response.live_recalls)),
        coverage_from_proto(response.coverage),
        degradations_from_proto(response.degradations),
    )


@dataclass(frozen=True, slots=True)
class IndexListing:
    """The indexes that the caller may search."""

    indexes: tuple[IndexSummary, ...]
    """By id, with the items on the shards that answered."""
    missing_shards: Mapping[int, ErrorReason] = field(default_factory=dict)
    """Why a shard did not answer, by its number."""


class ListedPages:
    """Collects all pages of ListIndexes."""

    def __init__(self, *, full_coverage_required: bool) -> None:
        self.listing = IndexListing(())
        self.next_request: search_service_pb2.ListIndexesRequest | None = (
            search_service_pb2.ListIndexesRequest(
                page_size=MAX_PAGE_SIZE, full_coverage_required=full_coverage_required
            )
        )
        """None once every page is here."""

    def put(self, page: search_service_pb2.ListIndexesResponse) -> None:
        """Takes the answer to `next_request`."""
        self.listing = IndexListing(
            (*self.listing.indexes, *map(summary_from_proto, page.indexes)),
            {**self.listing.missing_shards, **missing_from_proto(page.missing_shards)},
        )
        if not page.next_page_token:
            self.next_request = None
        elif self.next_request is not None:
            self.next_request.page_token = page.next_page_token
