"""States who may call each method, and how large a request may be before it is parsed.

The limits bound what parsing may cost; limits on what a request says are in
`tandem.contract.limits` and with each type. A method that is missing here admits no caller.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.contract.limits import (
    MAX_CONTENT_COUNT,
    MAX_DOCUMENT_COUNT,
    MAX_INGEST_ITEM_COUNT,
    MAX_MESSAGE_BYTES,
    MAX_NEIGHBOUR_CANDIDATE_COUNT,
    MAX_SCORE_QUERY_COUNT,
    MAX_SEARCH_COUNT,
    MAX_UPSERT_ITEM_COUNT,
)

KIB = 1024
MIB = 1024 * KIB


class AccessRule(enum.Enum):
    """Who may call a method."""

    SEARCH = "search"
    """Callers whose token has this scope."""
    WRITE = "write"
    ADMIN = "admin"
    INTERNAL = "internal"
    """Services of this deployment, which their certificates identify."""


@dataclass(frozen=True, slots=True)
class RequestLimit:
    """Bounds one message of a method on the wire."""

    max_bytes: int
    max_field_count: int
    """Counts every value, in nested messages and packed lists as well."""
    max_counts: Mapping[str, int] = field(default_factory=dict)
    """The most elements of a repeated top-level field, by the field's name."""


# A filter of 10,000 values has two fields a value, and some around them.
_FILTER_FIELD_COUNT = 30_000
# 64 items of 64 attributes, each a list of 64 words.
_ITEMS_FIELD_COUNT = 300_000

_SMALL = RequestLimit(64 * KIB, 1_000)
# A picture has 32 MiB at most.
_SEARCH = RequestLimit(40 * MIB, _FILTER_FIELD_COUNT)
_IDS = RequestLimit(256 * KIB, 5_000)

_METHODS: Mapping[str, tuple[AccessRule, RequestLimit]] = {
    "/tandem.v1.SearchService/SearchItems": (AccessRule.SEARCH, _SEARCH),
    "/tandem.v1.SearchService/StreamSearchItems": (AccessRule.SEARCH, _SEARCH),
    "/tandem.v1.SearchService/BatchSearchItems": (
        AccessRule.SEARCH,
        RequestLimit(MAX_MESSAGE_BYTES, 2 * _FILTER_FIELD_COUNT, {"searches": MAX_SEARCH_COUNT}),
    ),
    "/tandem.v1.SearchService/IngestItems": (
        AccessRule.WRITE,
        RequestLimit(MAX_MESSAGE_BYTES, _ITEMS_FIELD_COUNT, {"items": MAX_INGEST_ITEM_COUNT}),
    ),
    "/tandem.v1.SearchService/RemoveItems": (AccessRule.WRITE, _IDS),
    "/tandem.v1.SearchService/RemoveIndex": (AccessRule.WRITE, _SMALL),
    "/tandem.v1.SearchService/DescribeIndex": (AccessRule.SEARCH, _SMALL),
    "/tandem.v1.SearchService/ListIndexes": (AccessRule.SEARCH, _SMALL),
    "/tandem.v1.ContentService/FetchItems": (AccessRule.SEARCH, _IDS),
    "/tandem.v1.ContentService/ListItems": (AccessRule.SEARCH, _SMALL),
    "/tandem.v1.ContentService/EmbedContents": (
        AccessRule.SEARCH,
        RequestLimit(MAX_MESSAGE_BYTES, 1_000, {"contents": MAX_CONTENT_COUNT}),
    ),
    "/tandem.v1.ContentService/ScoreDocuments": (
        AccessRule.SEARCH,
        RequestLimit(MAX_MESSAGE_BYTES, 5_000, {"documents": MAX_DOCUMENT_COUNT}),
    ),
    "/tandem.v1.ModelService/DescribeModel": (AccessRule.SEARCH, _SMALL),
    "/tandem.v1.IndexAdminService/DescribeIndexes": (AccessRule.ADMIN, _SMALL),
    "/tandem.v1.IndexAdminService/TuneIndex": (AccessRule.ADMIN, _SMALL),
    "/tandem.v1.IndexAdminService/RebuildIndex": (AccessRule.ADMIN, _SMALL),
    "/tandem.v1.IndexAdminService/AdviseIndexType": (AccessRule.ADMIN, _SMALL),
    "/tandem.v1.IndexAdminService/BackUpShard": (AccessRule.ADMIN, _SMALL),
    "/tandem.v1.IndexAdminService/ReadChanges": (AccessRule.ADMIN, _SMALL),
    "/tandem.v1.IndexAdminService/FenceWrites": (AccessRule.ADMIN, _SMALL),
    "/tandem.v1.EncoderService/EncodeContents": (
        AccessRule.INTERNAL,
        RequestLimit(MAX_MESSAGE_BYTES, 1_000, {"contents": MAX_CONTENT_COUNT}),
    ),
    "/tandem.v1.IndexService/SearchEmbeddings": (
        AccessRule.INTERNAL,
        RequestLimit(4 * MIB, 2 * _FILTER_FIELD_COUNT),
    ),
    # As IngestItems; encodings add some fields to each of the 64 items.
    "/tandem.v1.IndexService/UpsertItems": (
        AccessRule.INTERNAL,
        RequestLimit(
            MAX_MESSAGE_BYTES, _ITEMS_FIELD_COUNT + 10_000, {"items": MAX_UPSERT_ITEM_COUNT}
        ),
    ),
    "/tandem.v1.IndexService/DeleteItems": (AccessRule.INTERNAL, _IDS),
    "/tandem.v1.IndexService/DeleteIndex": (AccessRule.INTERNAL, _SMALL),
    "/tandem.v1.IndexService/GetItems": (AccessRule.INTERNAL, _IDS),
    "/tandem.v1.IndexService/ListItemIds": (AccessRule.INTERNAL, _SMALL),
    "/tandem.v1.IndexService/FindNeighbours": (
        AccessRule.INTERNAL,
        RequestLimit(4 * MIB, 1_000, {"candidates": MAX_NEIGHBOUR_CANDIDATE_COUNT}),
    ),
    "/tandem.v1.IndexService/DescribeShardIndex": (AccessRule.INTERNAL, _SMALL),
    "/tandem.v1.IndexService/ListShardIndexes": (AccessRule.INTERNAL, _IDS),
    # A picture as a query, which a remote cross-encoder reads, has 32 MiB at most.
    "/tandem.v1.RerankService/ScoreCandidates": (
        AccessRule.INTERNAL,
        RequestLimit(40 * MIB, 5_000),
    ),
    "/tandem.v1.RerankService/ScoreBatch": (
        AccessRule.INTERNAL,
        RequestLimit(MAX_MESSAGE_BYTES, 5_000, {"queries": MAX_SCORE_QUERY_COUNT}),
    ),
    # Image tokens of 64 candidates.
    "/tandem.v1.RerankService/ScoreTokens": (
        AccessRule.INTERNAL,
        RequestLimit(MAX_MESSAGE_BYTES, 1_000, {"candidates": MAX_CONTENT_COUNT}),
    ),
    # Vectors of 64 items and their pillars, which may be of some thousand dimensions.
    "/tandem.v1.RerankService/ScoreGraph": (AccessRule.INTERNAL, RequestLimit(16 * MIB, 150_000)),
}

ACCESS: Mapping[str, AccessRule] = {path: rule for path, (rule, _) in _METHODS.items()}
REQUEST_LIMITS: Mapping[str, RequestLimit] = {path: limit for path, (_, limit) in _METHODS.items()}

PROBE_LIMIT = RequestLimit(64 * KIB, 100)
"""The limit of health and reflection."""


def request_limit(path: str) -> RequestLimit:
    """Returns the limit of the method at `path`: a small one for a method without an entry."""
    return REQUEST_LIMITS.get(path, _SMALL)
