"""Converts items, and what is asked of a shard about them, to messages and back."""

from operator import not_
from typing import Any

from tandem.contract.content import Encoding
from tandem.contract.filtering.attribute_wire import ATTRIBUTES_WIRE
from tandem.contract.record_wire import Field, RecordWire, repeated
from tandem.contract.search.answer_wire import CONTENT_WIRE
from tandem.contract.search.item_changes_wire import PATCH_WIRE
from tandem.errors import InternalFault
from tandem.stages.changes import ChangePage, ItemChange
from tandem.stages.item_write import Committed, Delete, Patch, Upsert
from tandem.stages.items import Deleted, FetchedItem, FetchedItems, ItemRecord, ItemsQuery
from tandem.stages.notes import Note, PutNote, SetWriter
from tandem.v1 import content_service_pb2 as content_pb
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import EMBEDDING_WIRE, TOKENS_WIRE, embeddings_from_proto

DELETE_WIRE = RecordWire(Delete, pb.DeleteItemsRequest)
PATCH_ITEMS_WIRE = RecordWire(Patch, pb.PatchItemsRequest, patches=repeated(PATCH_WIRE))
DELETED_INDEX_WIRE = RecordWire(Deleted, pb.DeleteIndexResponse, count="deleted_count")
ITEMS_QUERY_WIRE = RecordWire(
    ItemsQuery, pb.GetItemsRequest, content_included=Field(not_, not_, "content_excluded")
)
FETCH_WIRE = RecordWire(
    ItemsQuery,
    content_pb.FetchItemsRequest,
    own=["max_bytes"],
    content_included=Field(not_, not_, "content_excluded"),
    encodings_included="embeddings_included",
)
_UPSERT_WIRE = RecordWire(
    Upsert, pb.UpsertItemsRequest, own=["items"], fingerprint="model_fingerprint"
)
_ITEM_WIRE = RecordWire(
    ItemRecord,
    pb.EncodedItem,
    own=["encoding"],
    content=CONTENT_WIRE,
    attributes=ATTRIBUTES_WIRE,
)
NOTE_WIRE = RecordWire(Note, pb.Note)
PUT_NOTE_WIRE = RecordWire(PutNote, pb.PutNoteRequest, own=["index_id", "request_id"])
SET_WRITER_WIRE = RecordWire(SetWriter, pb.SetWriterRequest, own=["request_id"])
CHANGE_WIRE = RecordWire(ItemChange, admin_pb.ItemChange)
CHANGE_PAGE_WIRE = RecordWire(ChangePage, admin_pb.ReadChangesResponse, own=["changes"])
FETCHED_WIRE = RecordWire(
    FetchedItem,
    pb.Item,
    own=["encoding", "embedding"],
    content=CONTENT_WIRE,
    attributes=ATTRIBUTES_WIRE,
)
"""A message has the item's id too."""
_ENCODING_WIRE = RecordWire(
    Encoding,
    pb.EncodedItem,
    own=["text_use", "further_windows"],
    embedding=EMBEDDING_WIRE,
    tokens=TOKENS_WIRE,
)


def upsert_to_proto(write: Upsert, shard_map_version: int) -> pb.UpsertItemsRequest:
    """Returns the request that stores the items."""
    items = [
        _ITEM_WIRE.to_proto(each, **_ENCODING_WIRE.values(each.encoding)) for each in write.items
    ]
    return _UPSERT_WIRE.to_proto(write, items=items, shard_map_version=shard_map_version)


def upsert_from_proto(request: pb.UpsertItemsRequest) -> Upsert:
    """Returns the items to store; raises what Upsert raises, and the errors of contents."""
    embeddings_ND = embeddings_from_proto([item.embedding for item in request.items])
    items = [
        _ITEM_WIRE.from_proto(
            item, encoding=Encoding(embedding_D, TOKENS_WIRE.from_proto(item.tokens))
        )
        for item, embedding_D in zip(request.items, embeddings_ND, strict=True)
    ]
    return _UPSERT_WIRE.from_proto(request, items=items)


def committed_from_proto(response: Any) -> Committed:  # noqa: ANN401 (of any write)
    """Returns the outcome of a write."""
    return Committed(
        response.sequence,
        getattr(response, "deleted_count", 0),
        failures=dict(getattr(response, "failures", {})),
    )


def changes_from_proto(response: admin_pb.ReadChangesResponse) -> ChangePage:
    """Returns the page of changes."""
    changes = list(map(CHANGE_WIRE.from_proto, response.changes))
    return CHANGE_PAGE_WIRE.from_proto(response, changes=None if response.is_trimmed else changes)


def items_to_proto(fetched: FetchedItems) -> pb.GetItemsResponse:
    """Returns the response with the items."""
    response = pb.GetItemsResponse(
        model_fingerprint=fetched.fingerprint, read_count=fetched.read_count
    )
    for item_id, item in fetched.items.items():
        values = FETCHED_WIRE.values(item, item_id=item_id)
        if item.encoding is None:
            response.items.add(**values)
        else:
            response.encoded_items.add(**_ENCODING_WIRE.values(item.encoding, **values))
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
    encoding = _ENCODING_WIRE.from_proto(item) if isinstance(item, pb.EncodedItem) else None
    return FETCHED_WIRE.from_proto(item, encoding=encoding)
