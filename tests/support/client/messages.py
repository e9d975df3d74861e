"""Returns the messages that the SDK makes of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tandem.client.ingest.batches import IngestBatches, SentBatches
from tandem.client.item import NewItem
from tandem.client.query import Query, search_query
from tandem.contract.search.answer import IngestOutcome
from tandem.contract.search.ingest_wire import batch_to_proto, outcomes_from_proto
from tandem.contract.search.query_wire import searched_to_proto
from tandem.v1 import search_service_pb2 as pb


def search_request(query: Query, **arguments: Any) -> pb.SearchItemsRequest:
    """Returns the message of a search."""
    return searched_to_proto(search_query(query, **arguments))


class IngestRequests:
    """The messages of one ingest stream, and the outcomes that their answers give."""

    def __init__(
        self, items: Iterable[NewItem], *arguments: Any, target: str = "here", **more: Any
    ) -> None:
        self.sent = SentBatches(IngestBatches(items, *arguments, **more), target)

    def __iter__(self) -> Iterator[pb.IngestItemsRequest]:
        return map(batch_to_proto, self.sent)

    def outcomes(self, response: pb.IngestItemsResponse) -> list[IngestOutcome]:
        """Returns the outcomes of the next batch's items."""
        return self.sent.outcomes(list(outcomes_from_proto(response)))
