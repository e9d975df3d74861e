"""States who may call each method. A method that is missing here admits no caller."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Access(enum.Enum):
    """Who may call a method."""

    SEARCH = "search"
    """Callers whose token has this scope."""
    WRITE = "write"
    ADMIN = "admin"
    INTERNAL = "internal"
    """Services of this deployment, which their certificates identify."""


ACCESS: Mapping[str, Access] = {
    "/tandem.v1.SearchService/SearchItems": Access.SEARCH,
    "/tandem.v1.SearchService/StreamSearchItems": Access.SEARCH,
    "/tandem.v1.SearchService/BatchSearchItems": Access.SEARCH,
    "/tandem.v1.SearchService/IngestItems": Access.WRITE,
    "/tandem.v1.SearchService/RemoveItems": Access.WRITE,
    "/tandem.v1.SearchService/RemoveIndex": Access.WRITE,
    "/tandem.v1.ModelService/DescribeModel": Access.SEARCH,
    "/tandem.v1.IndexAdminService/DescribeIndexes": Access.ADMIN,
    "/tandem.v1.IndexAdminService/TuneIndex": Access.ADMIN,
    "/tandem.v1.IndexAdminService/RebuildIndex": Access.ADMIN,
    "/tandem.v1.IndexAdminService/AdviseIndexType": Access.ADMIN,
    "/tandem.v1.EncoderService/EncodeContents": Access.INTERNAL,
    "/tandem.v1.IndexService/SearchEmbeddings": Access.INTERNAL,
    "/tandem.v1.IndexService/UpsertItems": Access.INTERNAL,
    "/tandem.v1.IndexService/DeleteItems": Access.INTERNAL,
    "/tandem.v1.IndexService/DeleteIndex": Access.INTERNAL,
    "/tandem.v1.IndexService/GetItems": Access.INTERNAL,
    "/tandem.v1.RerankService/ScoreCandidates": Access.INTERNAL,
    "/tandem.v1.RerankService/ScoreBatch": Access.INTERNAL,
}
"""Access rules by the path of the method."""
