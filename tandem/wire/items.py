"""Converts items, and what is asked of a shard about them, to messages and back."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem.contract.attribute_wire import (
    attributes_from_proto,
    attributes_to_proto,
)
from tandem.contract.content import Encoding
from tandem.contract.identifiers import (
    check_index_id,
    check_item_id,
)
from tandem.contract.limits import (
    MAX_ITEM_ID_COUNT,
    MAX_PAGE_SIZE,
    check_batch_size,
)
from tandem.errors import (
    RequestMalformed,
)
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    embedding_to_proto,
    embeddings_from_proto,
    tokens_from_proto,
    tokens_to_proto,
)


def upsert_to_proto(
    index_id: str,
    fingerprint: str,
    items: Iterable[ItemRecord],
    request_id: str,
    shard_map_version: int,
) -> pb.UpsertItemsRequest:
    """Returns the request that stores the items."""
    return pb.UpsertItemsRequest(
        index_id=index_id,
        model_fingerprint=fingerprint,
        items=encoded_items_to_proto(items),
        request_id=request_id,
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


def delete_from_proto(request: pb.DeleteItemsRequest) -> Delete:
    """Returns the items to delete; raises what Delete raises."""
    return Delete(request.index_id, list(request.item_ids), request.request_id)


def get_from_proto(request: pb.GetItemsRequest) -> tuple[str, list[str], int]:
    """Returns the index id, the item ids to read, and the most bytes; 0 is the shard's limit.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, RequestMalformed.
    """
    if request.max_bytes < 0:
        raise RequestMalformed(why=f"max_bytes is {request.max_bytes}")
    check_batch_size("item_ids", len(request.item_ids), MAX_ITEM_ID_COUNT)
    item_ids = [check_item_id(item_id) for item_id in request.item_ids]
    return check_index_id(request.index_id), item_ids, request.max_bytes


def list_from_proto(request: pb.ListItemIdsRequest) -> tuple[str, str, int]:
    """Returns the index id, the id after which to list, and how many to list.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid.
    """
    check_batch_size("item_ids", request.max_count, MAX_PAGE_SIZE)
    after = check_item_id(request.after) if request.after else ""
    return check_index_id(request.index_id), after, request.max_count


def check_page(count: int, index_ids: Sequence[str]) -> None:
    """Raises BatchSizeOutOfRange for a page that is too large, or is of too many indexes."""
    check_batch_size("indexes", count, MAX_PAGE_SIZE)
    if index_ids:
        check_batch_size("index_ids", len(index_ids), MAX_PAGE_SIZE)


def items_to_proto(items: Iterable[ItemRecord], *, content_included: bool = True) -> list[pb.Item]:
    """Returns the messages of items with attributes, and with contents if they are included."""
    return [
        pb.Item(
            item_id=item.item_id,
            content=content_to_proto(item.content) if content_included else None,
            attributes=attributes_to_proto(item.attributes),
        )
        for item in items
    ]


def encoded_items_to_proto(items: Iterable[ItemRecord]) -> list[pb.EncodedItem]:
    """Returns the messages of items with their encodings too."""
    return [
        pb.EncodedItem(
            item_id=item.item_id,
            content=content_to_proto(item.content),
            embedding=embedding_to_proto(item.encoding.embedding),
            tokens=tokens_to_proto(item.encoding.tokens),
            attributes=attributes_to_proto(item.attributes),
        )
        for item in items
    ]


def _item_from_proto(message: pb.EncodedItem, embedding_D: NDArray[np.float32]) -> ItemRecord:
    return ItemRecord(
        message.item_id,
        content_from_proto(message.content),
        Encoding(embedding_D, tokens_from_proto(message.tokens, may_be_empty=True)),
        attributes_from_proto(message.attributes),
    )
