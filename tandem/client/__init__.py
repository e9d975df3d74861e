"""The Python SDK, which needs only grpcio and protobuf.

    with Client("127.0.0.1:7400") as client:
        for item in client.search("two birds left of one alarm clock", index_id="scenes").items:
            print(item.final_rank, item.item_id)

A filter restricts a search: `where=where.equals("style", "noto")` or `where="style = noto"`.
A degraded answer says so: `result.degradations`, `result.coverage`.
A query may be a stored item, or several weighted parts:

    client.search([QueryPart("at night"), QueryPart(StoredItem("photo-7"), 0.5)], index_id="pets",
                  target_modality=Modality.IMAGE)

A search sees a write of another process if you pass the write's token:

    items = [Item("my-cat", image=Path("cat.jpg").read_bytes(), attributes={"colour": "red"})]
    *_, last = client.ingest(items, index_id="pets")
    client.search("one cat", index_id="pets", consistency_tokens=[last.consistency_token])

Errors are the classes of `tandem.errors`.
"""

# client, async_client        one call a method; Client is generated from AsyncClient
# query, search_options, item, tables, changes, where, access  what callers give
# arguments, sendable         its checks
# calls, ingest, testing      what carries calls; the items of an ingest; a fake for tests

from tandem.client import where
from tandem.client.access import Access
from tandem.client.async_client import AsyncClient
from tandem.client.calls.retries import NO_RETRIES, RetryPolicy
from tandem.client.changes import NewPatch
from tandem.client.client import Client
from tandem.client.ingest.rounds import IngestProgress
from tandem.client.item import Item, NewContent, NewItem
from tandem.client.query import NewDocument, Query, QueryPart, Search
from tandem.client.tables import table_items
from tandem.contract.content import (
    Content,
    ImageContent,
    Modality,
    TextContent,
    TextUse,
    TruncationPolicy,
)
from tandem.contract.fusion import FusionMethod, HybridFusion, HybridRank
from tandem.contract.index_description import DirectionRecall, IndexPart, IndexSummary, ShardIndex
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import ModelDescription
from tandem.contract.picture_base64 import decoded_picture
from tandem.contract.regions import RegionContent
from tandem.contract.search.answer import (
    Abstention,
    Coverage,
    Explanation,
    FoundItem,
    IngestOutcome,
    NeighbourSummary,
    Removal,
    RerankSummary,
    ScoreTerm,
    SearchResult,
    StageSeconds,
)
from tandem.contract.search.answer_names import (
    DegradationKind,
    ErrorReason,
    NeighbourStopReason,
    OrderedBy,
    RerankStopReason,
)
from tandem.contract.search.documents import DocumentScore, ScoredDocuments
from tandem.contract.search.indexes import IndexDescription, IndexListing
from tandem.contract.search.item_changes import Changes, ItemFailure, ItemPatch, KeptItem
from tandem.contract.search.query import GivenEncoding, SearchOptions, StoredItem
from tandem.contract.search_path import (
    KeywordState,
    SearchFallback,
    SearchPath,
    SearchStrategy,
    ShardRetrieval,
)

__all__ = [
    "NO_RETRIES",
    "Abstention",
    "Access",
    "AsyncClient",
    "Changes",
    "Client",
    "Content",
    "Coverage",
    "DegradationKind",
    "DirectionRecall",
    "DocumentScore",
    "ErrorReason",
    "Explanation",
    "FoundItem",
    "FusionMethod",
    "GivenEncoding",
    "HybridFusion",
    "HybridRank",
    "ImageContent",
    "IndexDescription",
    "IndexListing",
    "IndexPart",
    "IndexSummary",
    "InferenceCost",
    "IngestOutcome",
    "IngestProgress",
    "Item",
    "ItemFailure",
    "ItemPatch",
    "KeptItem",
    "KeywordState",
    "Modality",
    "ModelDescription",
    "NeighbourStopReason",
    "NeighbourSummary",
    "NewContent",
    "NewDocument",
    "NewItem",
    "NewPatch",
    "OrderedBy",
    "Query",
    "QueryPart",
    "RegionContent",
    "Removal",
    "RerankStopReason",
    "RerankSummary",
    "RetryPolicy",
    "ScoreTerm",
    "ScoredDocuments",
    "Search",
    "SearchFallback",
    "SearchOptions",
    "SearchPath",
    "SearchResult",
    "SearchStrategy",
    "ShardIndex",
    "ShardRetrieval",
    "StageSeconds",
    "StoredItem",
    "TextContent",
    "TextUse",
    "TruncationPolicy",
    "decoded_picture",
    "table_items",
    "where",
]
