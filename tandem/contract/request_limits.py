"""How large a request of each method may be, before anybody parses it.

Limits on what a request says (64 items, 1,000 values of a condition) are elsewhere, where they are
known; these bound what it costs to find out. A method that is not here may send little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class RequestLimit:
    """What one message of a method may be on the wire."""

    max_bytes: int
    max_field_count: int
    """Values of fields, those in messages within it and elements of packed lists included."""
    max_counts: Mapping[str, int] = field(default_factory=dict)
    """By name of a repeated field at its top, how many elements that may have."""


# A filter of 10,000 values, two each, and all that is around them.
_FILTER_FIELD_COUNT = 30_000
# 64 items of 64 attributes, each a list of 64 words.
_ITEMS_FIELD_COUNT = 300_000

_SMALL = RequestLimit(64 * KIB, 1_000)
_SEARCH = RequestLimit(32 * MIB, _FILTER_FIELD_COUNT)
_IDS = RequestLimit(256 * KIB, 5_000)

# Text and pictures: 64 MiB is also what gRPC takes at most (`tandem.chassis.channels`).
REQUEST_LIMITS: Mapping[str, RequestLimit] = {
    "/tandem.v1.SearchService/SearchItems": _SEARCH,
    "/tandem.v1.SearchService/StreamSearchItems": _SEARCH,
    "/tandem.v1.SearchService/BatchSearchItems": RequestLimit(
        64 * MIB, 2 * _FILTER_FIELD_COUNT, {"searches": 64}
    ),
    "/tandem.v1.SearchService/IngestItems": RequestLimit(
        64 * MIB, _ITEMS_FIELD_COUNT, {"items": 64}
    ),
    "/tandem.v1.SearchService/RemoveItems": _IDS,
    "/tandem.v1.SearchService/RemoveIndex": _SMALL,
    "/tandem.v1.ModelService/DescribeModel": _SMALL,
    "/tandem.v1.IndexAdminService/DescribeIndexes": _SMALL,
    "/tandem.v1.IndexAdminService/TuneIndex": _SMALL,
    "/tandem.v1.IndexAdminService/RebuildIndex": _SMALL,
    "/tandem.v1.IndexAdminService/AdviseIndexType": _SMALL,
    "/tandem.v1.EncoderService/EncodeContents": RequestLimit(64 * MIB, 1_000, {"contents": 64}),
    "/tandem.v1.IndexService/SearchEmbeddings": RequestLimit(4 * MIB, 2 * _FILTER_FIELD_COUNT),
    # Encoded, 64 items are a little more than they were.
    "/tandem.v1.IndexService/UpsertItems": RequestLimit(
        64 * MIB, _ITEMS_FIELD_COUNT + 10_000, {"items": 256}
    ),
    "/tandem.v1.IndexService/DeleteItems": _IDS,
    "/tandem.v1.IndexService/DeleteIndex": _SMALL,
    "/tandem.v1.IndexService/GetItems": _IDS,
    "/tandem.v1.RerankService/ScoreCandidates": RequestLimit(4 * MIB, 5_000),
    "/tandem.v1.RerankService/ScoreBatch": RequestLimit(64 * MIB, 5_000, {"queries": 64}),
}
"""By the path of the call."""

PROBE_LIMIT = RequestLimit(64 * KIB, 100)
"""Of health and reflection, which are asked for by name."""


def request_limit(path: str) -> RequestLimit:
    """Returns the limit of the method of `path`; a small one where it is not named."""
    return REQUEST_LIMITS.get(path, _SMALL)
