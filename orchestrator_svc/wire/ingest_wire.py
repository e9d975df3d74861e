"""Converts batches of an ingest stream, and their outcomes, from and to messages."""

import asyncio

from tandem.contract.attribute_wire import attributes_from_proto
from tandem.errors import TandemError
from tandem.search.writes.ingest import IncomingItem, IngestBatch, Ingested
from tandem.v1 import index_service_pb2, search_service_pb2
from tandem.wire import (
    content_from_proto,
    item_error_to_proto,
    text_use_to_proto,
    truncation_policy_from_proto,
)


async def batch_from_proto(request: search_service_pb2.IngestItemsRequest) -> IngestBatch:
    """Returns the batch; an item that is malformed holds its error instead of a content."""
    items = []
    for item in request.items:
        items.append(_item_from_proto(item))
        await asyncio.sleep(0)  # an item may have 64 lists of 64 words, and other calls wait
    return IngestBatch(
        request.index_id,
        items,
        request.request_id,
        truncation_policy_from_proto(request.truncation_policy),
    )


def ingested_to_proto(
    batch: IngestBatch, ingested: Ingested, consistency_token: str
) -> search_service_pb2.IngestItemsResponse:
    """Returns the answer to a batch."""
    response = search_service_pb2.IngestItemsResponse(consistency_token=consistency_token)
    for number, (item, error) in enumerate(zip(batch.items, ingested.outcomes, strict=True)):
        use = ingested.text_uses.get(number)
        response.results.add(
            item_id=item.item_id,
            error=item_error_to_proto(error) if error else None,
            text_use=text_use_to_proto(use) if use else None,
        )
    return response


def _item_from_proto(item: index_service_pb2.Item) -> IncomingItem:
    try:
        return IncomingItem(
            item.item_id,
            content_from_proto(item.content),
            attributes_from_proto(item.attributes),
        )
    except TandemError as error:
        return IncomingItem(item.item_id, error.kept())
