"""States who may call each method. A method that is missing here admits no caller."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class AccessRule(enum.Enum):
    """Who may call a method."""

    SEARCH = "search"
    """Callers whose token has this scope."""
    WRITE = "write"
    ADMIN = "admin"
    INTERNAL = "internal"
    """Services of this deployment, which their certificates identify."""


ACCESS: Mapping[str, AccessRule] = {
    "/tandem.v1.SearchService/SearchItems": AccessRule.SEARCH,
    "/tandem.v1.SearchService/StreamSearchItems": AccessRule.SEARCH,
    "/tandem.v1.SearchService/BatchSearchItems": AccessRule.SEARCH,
    "/tandem.v1.SearchService/IngestItems": AccessRule.WRITE,
    "/tandem.v1.SearchService/RemoveItems": AccessRule.WRITE,
    "/tandem.v1.SearchService/RemoveIndex": AccessRule.WRITE,
    "/tandem.v1.SearchService/DescribeIndex": AccessRule.SEARCH,
    "/tandem.v1.SearchService/ListIndexes": AccessRule.SEARCH,
    "/tandem.v1.ContentService/FetchItems": AccessRule.SEARCH,
    "/tandem.v1.ContentService/ListItems": AccessRule.SEARCH,
    "/tandem.v1.ContentService/EmbedContents": AccessRule.SEARCH,
    "/tandem.v1.ContentService/ScoreDocuments": AccessRule.SEARCH,
    "/tandem.v1.ModelService/DescribeModel": AccessRule.SEARCH,
    "/tandem.v1.IndexAdminService/DescribeIndexes": AccessRule.ADMIN,
    "/tandem.v1.IndexAdminService/TuneIndex": AccessRule.ADMIN,
    "/tandem.v1.IndexAdminService/RebuildIndex": AccessRule.ADMIN,
    "/tandem.v1.IndexAdminService/AdviseIndexType": AccessRule.ADMIN,
    "/tandem.v1.EncoderService/EncodeContents": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/SearchEmbeddings": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/UpsertItems": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/DeleteItems": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/DeleteIndex": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/GetItems": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/ListItemIds": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/FindNeighbours": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/DescribeShardIndex": AccessRule.INTERNAL,
    "/tandem.v1.IndexService/ListShardIndexes": AccessRule.INTERNAL,
    "/tandem.v1.RerankService/ScoreCandidates": AccessRule.INTERNAL,
    "/tandem.v1.RerankService/ScoreBatch": AccessRule.INTERNAL,
    "/tandem.v1.RerankService/ScoreTokens": AccessRule.INTERNAL,
    "/tandem.v1.RerankService/ScoreGraph": AccessRule.INTERNAL,
}
"""Access rules by the path of the method."""
