"""Converts the description of an index to the contract's message."""

from collections.abc import Iterator

from orchestrator_svc.wire.search_wire import coverage_to_proto, missing_to_proto
from tandem.contract.index_description import (
    recall_to_proto,
    shard_index_to_proto,
    summary_to_proto,
)
from tandem.search.indexes.index_list import IndexPage
from tandem.search.indexes.index_survey import SurveyedIndex
from tandem.v1 import search_service_pb2 as pb


def surveyed_to_proto(surveyed: SurveyedIndex) -> pb.DescribeIndexResponse:
    """Returns the message for a surveyed index."""
    return pb.DescribeIndexResponse(
        model_fingerprint=surveyed.fingerprint,
        embedding_dimension=surveyed.embedding_dimension,
        shards=map(shard_index_to_proto, surveyed.shards),
        live_recalls=map(recall_to_proto, surveyed.live_recalls),
        coverage=coverage_to_proto(surveyed.coverage),
        degradations=_degradations(surveyed),
    )


def listed_to_proto(page: IndexPage) -> pb.ListIndexesResponse:
    """Returns the message for a page of indexes."""
    return pb.ListIndexesResponse(
        indexes=map(summary_to_proto, page.indexes),
        next_page_token=page.last,
        missing_shards=missing_to_proto(page.missing),
    )


def _degradations(surveyed: SurveyedIndex) -> Iterator[pb.Degradation]:
    if surveyed.coverage.missing:
        yield pb.DEGRADATION_SHARDS_MISSING
    if surveyed.is_rebuilding:
        yield pb.DEGRADATION_SHARD_REBUILDING
