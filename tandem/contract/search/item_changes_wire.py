"""Converts listings and changes of stored items from and to messages."""

from tandem.contract.filtering.attribute_wire import (
    ATTRIBUTES_WIRE,
    CheckedFilter,
    checked_filter,
    filter_to_proto,
)
from tandem.contract.filtering.filter_expression import parse_filter
from tandem.contract.record_wire import Field, RecordWire, repeated
from tandem.contract.search.answer_wire import CONTENT_WIRE, ITEM_ERROR_WIRE
from tandem.contract.search.item_changes import (
    Changes,
    ItemFailure,
    ItemListing,
    ItemPatch,
    ItemsChange,
    ItemSelection,
    ItemsRemoval,
    KeptItem,
)
from tandem.errors import FilterInvalid, TandemError
from tandem.v1 import attribute_pb2, content_service_pb2, index_service_pb2
from tandem.v1 import search_service_pb2 as pb


def filter_from_proto(
    message: pb.SearchItemsRequest | index_service_pb2.ItemSelection,
) -> CheckedFilter | None:
    """Returns the filter of a message that may have it as text; raises FilterInvalid."""
    if message.filter_text:
        if message.HasField("filter"):
            raise FilterInvalid(why="set filter or filter_text, not both")
        return checked_filter(filter_to_proto(parse_filter(message.filter_text)))
    return checked_filter(message.filter) if message.HasField("filter") else None


def _selection_to_proto(selection: ItemSelection) -> index_service_pb2.ItemSelection:
    where = selection.filter
    return index_service_pb2.ItemSelection(
        id_prefix=selection.id_prefix,
        id_glob=selection.id_glob,
        filter=None if where is None else attribute_pb2.Filter.FromString(where.message),
    )


def _selection_from_proto(message: index_service_pb2.ItemSelection) -> ItemSelection:
    return ItemSelection(message.id_prefix, message.id_glob, filter_from_proto(message))


def _patch_from_proto(message: index_service_pb2.ItemPatch) -> ItemPatch | ItemFailure:
    try:
        return PATCH_WIRE.from_proto(message)
    except TandemError as error:
        return ItemFailure(message.item_id, error.kept())


SELECTION_WIRE = Field(_selection_to_proto, _selection_from_proto)
PATCH_WIRE = RecordWire(ItemPatch, index_service_pb2.ItemPatch, attributes=ATTRIBUTES_WIRE)
REMOVAL_QUERY_WIRE = RecordWire(ItemsRemoval, pb.RemoveItemsRequest, selection=SELECTION_WIRE)
CHANGE_WIRE = RecordWire(
    ItemsChange,
    pb.ChangeItemsRequest,
    selection=SELECTION_WIRE,
    patches=Field(
        lambda patches: list(map(PATCH_WIRE.to_proto, patches)),
        lambda messages: list(map(_patch_from_proto, messages)),
    ),
)
CHANGES_WIRE = RecordWire(
    Changes,
    pb.ChangeItemsResponse,
    failures=repeated(RecordWire(ItemFailure, pb.ItemFailure, error=ITEM_ERROR_WIRE)),
)
LISTING_WIRE = RecordWire(
    ItemListing, content_service_pb2.ListItemsRequest, selection=SELECTION_WIRE
)
KEPT_WIRE = RecordWire(
    KeptItem, index_service_pb2.Item, content=CONTENT_WIRE, attributes=ATTRIBUTES_WIRE
)
