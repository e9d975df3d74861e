"""Converts items, and what is asked of a shard about them, to messages and back."""

from operator import not_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Encoding
from tandem.contract.filtering.attribute_wire import (
    attributes_from_proto,
    attributes_to_proto,
)
from tandem.contract.record_wire import Field, RecordWire
from tandem.contract.search.answer_wire import content_from_proto, content_to_proto
from tandem.errors import InternalFault
from tandem.stages.item_write import Committed, Delete, Upsert
from tandem.stages.items import FetchedItem, FetchedItems, ItemRecord, ItemsQuery
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import EMBEDDING_WIRE, TOKENS_WIRE, embeddings_from_proto


def upsert_to_proto(write: Upsert, shard_map_version: int) -> pb.UpsertItemsRequest:
    """Returns the request that stores the items."""
    return pb.UpsertItemsRequest(
        index_id=write.index_id,
        model_fingerprint=write.fingerprint,
        items=[
            pb.EncodedItem(
                item_id=item.item_id,
                content=content_to_proto(item.content),
                attributes=attributes_to_proto(item.attributes),
                **_encoding_to_proto(item.encoding),
            )
            for item in write.items
        ],
        request_id=write.request_id,
        shard_map_version=shard_map_version,
    )


def upsert_from_proto(request: pb.UpsertItemsRequest) -> Upsert:
    """Returns the items to store; raises what Upsert raises, and the errors of contents."""
    embeddings_ND = embeddings_from_proto([item.embedding for item in request.items])
    items = [
        _item_from_proto(item, embedding_D)
        for item, embedding_D in zip(request.items, embeddings_ND, strict=True)
    ]
    return Upsert(
        index_id=request.index_id,
        fingerprint=request.model_fingerprint,
        items=items,
        request_id=request.request_id,
    )


DELETE_WIRE = RecordWire(Delete, pb.DeleteItemsRequest)


def committed_from_proto(
    response: pb.UpsertItemsResponse | pb.DeleteItemsResponse,
) -> Committed:
    """Returns the outcome of a write."""
    if isinstance(response, pb.UpsertItemsResponse):
        return Committed(response.sequence)
    return Committed(response.sequence, response.deleted_count)


ITEMS_QUERY_WIRE = RecordWire(
    ItemsQuery, pb.GetItemsRequest, content_included=Field(not_, not_, "content_excluded")
)


def items_to_proto(fetched: FetchedItems) -> pb.GetItemsResponse:
    """Returns the response with the items."""
    response = pb.GetItemsResponse(
        model_fingerprint=fetched.fingerprint, read_count=fetched.read_count
    )
    for item_id, item in fetched.items.items():
        fields: dict[str, Any] = {
            "item_id": item_id,
            "content": None if item.content is None else content_to_proto(item.content),
            "attributes": attributes_to_proto(item.attributes),
        }
        if item.encoding is None:
            response.items.add(**fields)
        else:
            response.encoded_items.add(**fields, **_encoding_to_proto(item.encoding))
    return response


def items_from_proto(response: pb.GetItemsResponse, query: ItemsQuery, shard: str) -> FetchedItems:
    """Returns the items from the shard of that name; raises InternalFault for a wrong count."""
    if query.encodings_included and response.items:
        raise InternalFault(why="a shard of an earlier version gives no encodings; update it")
    count = len(query.item_ids)
    # A shard of an earlier version answers all or fails.
    read_count = response.read_count if response.HasField("read_count") else count
    if not 1 <= read_count <= count:
        raise InternalFault(why=f"{shard} read {read_count} of {count} items")
    items: list[pb.Item | pb.EncodedItem] = [*response.items, *response.encoded_items]
    return FetchedItems(
        {item.item_id: _fetched(item) for item in items},
        read_count,
        response.model_fingerprint,
    )


def _fetched(item: pb.Item | pb.EncodedItem) -> FetchedItem:
    return FetchedItem(
        content_from_proto(item.content) if item.HasField("content") else None,
        attributes_from_proto(item.attributes),
        Encoding(EMBEDDING_WIRE.from_proto(item.embedding), TOKENS_WIRE.from_proto(item.tokens))
        if isinstance(item, pb.EncodedItem)
        else None,
    )


def _encoding_to_proto(encoding: Encoding) -> dict[str, Any]:
    return {
        "embedding": EMBEDDING_WIRE.to_proto(encoding.embedding),
        "tokens": TOKENS_WIRE.to_proto(encoding.tokens),
    }


def _item_from_proto(message: pb.EncodedItem, embedding_D: NDArray[np.float32]) -> ItemRecord:
    return ItemRecord(
        message.item_id,
        content_from_proto(message.content),
        Encoding(embedding_D, TOKENS_WIRE.from_proto(message.tokens)),
        attributes_from_proto(message.attributes),
    )
