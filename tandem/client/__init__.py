"""The Python SDK. Needs grpcio and protobuf, nothing else of Tandem's extras.

    with Client("127.0.0.1:7400") as client:
        for item in client.search("two dogs left of one umbrella", index_id="scenes").items:
            print(item.final_rank, item.item_id)

A search finds only what its filter holds for: `where=where.equals("style", "noto")`.
An answer may lack what is on a shard that did not answer: `result.coverage.is_full` tells.
A search by another process sees a write if it is given the write's token:

    *_, last = client.ingest(items, index_id="pets")
    client.search("one cat", index_id="pets", consistency_tokens=[last.consistency_token])

Errors are those of `tandem.errors`, by name.
"""

from tandem.client import where
from tandem.client.async_client import AsyncClient
from tandem.client.client import Client
from tandem.client.requests import NewItem
from tandem.client.results import (
    Coverage,
    FoundItem,
    IngestOutcome,
    Removal,
    SearchResult,
    StageSeconds,
)
from tandem.content import TextUse, TruncationPolicy

__all__ = [
    "AsyncClient",
    "Client",
    "Coverage",
    "FoundItem",
    "IngestOutcome",
    "NewItem",
    "Removal",
    "SearchResult",
    "StageSeconds",
    "TextUse",
    "TruncationPolicy",
    "where",
]
