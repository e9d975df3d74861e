"""States who may call each method, and how large a request may be before it is parsed.

The limits bound what parsing may cost; limits on what a request says are in
`tandem.contract.limits` and with each type. A method that is missing here admits no caller.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.contract.limits import (
    MAX_CONTENT_COUNT,
    MAX_DOCUMENT_COUNT,
    MAX_INGEST_ITEM_COUNT,
    MAX_MESSAGE_BYTES,
    MAX_NEIGHBOUR_CANDIDATE_COUNT,
    MAX_PATCH_COUNT,
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


def _whole(max_field_count: int, **max_counts: int) -> RequestLimit:
    """Returns the limit of a message that may be as large as gRPC's."""
    return RequestLimit(MAX_MESSAGE_BYTES, max_field_count, max_counts)


_SMALL = RequestLimit(64 * KIB, 1_000)
# A picture has 32 MiB at most.
_SEARCH = RequestLimit(40 * MIB, _FILTER_FIELD_COUNT)
_IDS = RequestLimit(256 * KIB, 5_000)
# A filter has 1 MiB at most.
_SELECTION = RequestLimit(2 * MIB, _FILTER_FIELD_COUNT)

_METHODS: Mapping[AccessRule, Mapping[str, RequestLimit]] = {
    AccessRule.SEARCH: {
        "SearchService/SearchItems": _SEARCH,
        "SearchService/StreamSearchItems": _SEARCH,
        "SearchService/BatchSearchItems": _whole(
            2 * _FILTER_FIELD_COUNT, searches=MAX_SEARCH_COUNT
        ),
        "SearchService/DescribeIndex": _SMALL,
        "SearchService/ListIndexes": _SMALL,
        "ContentService/FetchItems": _IDS,
        "ContentService/ListItems": _SELECTION,
        "ContentService/EmbedContents": _whole(1_000, contents=MAX_CONTENT_COUNT),
        "ContentService/ScoreDocuments": _whole(5_000, documents=MAX_DOCUMENT_COUNT),
        "ModelService/DescribeModel": _SMALL,
    },
    AccessRule.WRITE: {
        "SearchService/IngestItems": _whole(_ITEMS_FIELD_COUNT, items=MAX_INGEST_ITEM_COUNT),
        "SearchService/ChangeItems": _whole(_ITEMS_FIELD_COUNT, patches=MAX_PATCH_COUNT),
        "SearchService/RemoveItems": _SELECTION,
        "SearchService/RemoveIndex": _SMALL,
    },
    AccessRule.ADMIN: {
        # Null scores of 8 kB for each scorer and direction.
        "SearchService/SetCalibrations": RequestLimit(MIB, 1_000),
    }
    | {
        f"IndexAdminService/{method}": _SMALL
        for method in (
            "DescribeIndexes",
            "TuneIndex",
            "RebuildIndex",
            "AdviseIndexType",
            "BackUpShard",
            "FenceWrites",
        )
    }
    | {
        f"GenerationService/{method}": _SMALL
        for method in (
            "CreateGeneration",
            "ListGenerations",
            "PromoteGeneration",
            "RollBackGeneration",
            "DropGeneration",
        )
    },
    AccessRule.INTERNAL: {
        "EncoderService/EncodeContents": _whole(1_000, contents=MAX_CONTENT_COUNT),
        "IndexService/SearchEmbeddings": RequestLimit(4 * MIB, 2 * _FILTER_FIELD_COUNT),
        # As IngestItems; encodings add some fields to each of the 64 items.
        "IndexService/UpsertItems": _whole(
            _ITEMS_FIELD_COUNT + 10_000, items=MAX_UPSERT_ITEM_COUNT
        ),
        "IndexService/PatchItems": _whole(_ITEMS_FIELD_COUNT, patches=MAX_PATCH_COUNT),
        "IndexService/DeleteItems": _IDS,
        "IndexService/ReadNotes": _SMALL,
        "IndexService/PutNote": RequestLimit(2 * MIB, 100),
        "IndexService/SetWriter": RequestLimit(2 * MIB, 100),
        "IndexService/DeleteIndex": _SMALL,
        "IndexService/GetItems": _IDS,
        "IndexService/ListItemIds": _SELECTION,
        "IndexService/FindNeighbours": RequestLimit(
            4 * MIB, 1_000, {"candidates": MAX_NEIGHBOUR_CANDIDATE_COUNT}
        ),
        "IndexService/DescribeShardIndex": _SMALL,
        "IndexAdminService/ReadChanges": _SMALL,
        "IndexService/ListShardIndexes": _IDS,
        # A picture as a query, which a remote cross-encoder reads, has 32 MiB at most.
        "RerankService/ScoreCandidates": RequestLimit(40 * MIB, 5_000),
        "RerankService/ScoreBatch": _whole(5_000, queries=MAX_SCORE_QUERY_COUNT),
        # Image tokens of 64 candidates.
        "RerankService/ScoreTokens": _whole(1_000, candidates=MAX_CONTENT_COUNT),
        # Vectors of 64 items and their pillars, which may be of some thousand dimensions.
        "RerankService/ScoreGraph": RequestLimit(16 * MIB, 150_000),
    },
}

ACCESS: Mapping[str, AccessRule] = {
    f"/tandem.v1.{method}": rule for rule, methods in _METHODS.items() for method in methods
}
REQUEST_LIMITS: Mapping[str, RequestLimit] = {
    f"/tandem.v1.{method}": limit
    for methods in _METHODS.values()
    for method, limit in methods.items()
}

PROBE_LIMIT = RequestLimit(64 * KIB, 100)
"""The limit of health and reflection."""


def request_limit(path: str) -> RequestLimit:
    """Returns the limit of the method at `path`: a small one for a method without an entry."""
    return REQUEST_LIMITS.get(path, _SMALL)
