"""Calls one shard's index_svc."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from tandem.chassis.calls.channels import call
from tandem.contract.deadline import Deadline
from tandem.contract.index_description import SUMMARY_WIRE, IndexSummary
from tandem.contract.search.item_changes import ItemSelection
from tandem.contract.search.item_changes_wire import SELECTION_WIRE
from tandem.errors import InternalFault, PermissionDenied
from tandem.stages.changes import ChangePage
from tandem.stages.item_write import Committed, Delete, Patch, ShardWrite, Upsert
from tandem.stages.items import Deleted, FetchedItems, ItemsQuery
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.notes import Note, PutNote, SetWriter
from tandem.stages.retrieval import ShardDescription, ShardQuery
from tandem.stages.shard import Shard
from tandem.stages.shard_answer import ShardAnswer
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2 import ReadChangesRequest
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire.items import (
    DELETE_WIRE,
    DELETED_INDEX_WIRE,
    ITEMS_QUERY_WIRE,
    NOTE_WIRE,
    PATCH_ITEMS_WIRE,
    PUT_NOTE_WIRE,
    SET_WRITER_WIRE,
    changes_from_proto,
    committed_from_proto,
    items_from_proto,
    upsert_to_proto,
)
from tandem.wire.neighbours import neighbour_query_to_proto, neighbours_from_proto
from tandem.wire.retrieval import DESCRIPTION_WIRE, answer_from_proto, query_to_proto

Response = TypeVar("Response")


class RemoteShard(Shard):
    """A shard behind a channel; one of an earlier version raises InternalFault where it lacks."""

    def __init__(self, channel: grpc.aio.Channel, number: int, shard_map_version: int = 1) -> None:
        """Sends `shard_map_version`; a shard refuses calls by another version than its own."""
        self._stub = IndexServiceStub(channel)
        self._admin = IndexAdminServiceStub(channel)
        self._name = f"index-{number}"
        self._shard_map_version = shard_map_version

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""
        request = query_to_proto(query, self._shard_map_version)
        response: pb.SearchEmbeddingsResponse = await self._call(
            self._stub.SearchEmbeddings, request, deadline
        )
        return answer_from_proto(response, query, self._name)

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours among the shard's items."""
        request = neighbour_query_to_proto(query, self._shard_map_version)
        response: pb.FindNeighboursResponse = await self._call(
            self._stub.FindNeighbours, request, deadline
        )
        return neighbours_from_proto(response, query, self._name)

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items of the query."""
        response: pb.GetItemsResponse = await self._call(
            self._stub.GetItems, ITEMS_QUERY_WIRE.to_proto(query), deadline
        )
        return items_from_proto(response, query, self._name)

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        """Stores or deletes all items or none, or notes something."""
        version, stub = self._shard_map_version, self._stub
        request: Message
        match write:
            case Upsert():
                method, request = stub.UpsertItems, upsert_to_proto(write, version)
            case Patch():
                method = stub.PatchItems
                request = PATCH_ITEMS_WIRE.to_proto(write, shard_map_version=version)
            case Delete():
                method = stub.DeleteItems
                request = DELETE_WIRE.to_proto(write, shard_map_version=version)
            case PutNote():
                method, request = stub.PutNote, PUT_NOTE_WIRE.to_proto(write)
            case SetWriter():
                method = stub.SetWriter
                request = SET_WRITER_WIRE.to_proto(write, shard_map_version=version)
        return committed_from_proto(await self._call(method, request, deadline))

    async def notes(self, prefix: str, deadline: Deadline) -> Sequence[Note]:
        """Returns the notes whose keys begin so; a shard of an earlier version has none."""
        request = pb.ReadNotesRequest(prefix=prefix)
        try:
            response: pb.ReadNotesResponse = await self._call(
                self._stub.ReadNotes, request, deadline
            )
        except (InternalFault, PermissionDenied) as error:
            # Of an unknown method; with certificates, no caller may call it.
            code = getattr(error.__cause__, "code", lambda: None)()
            if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                return ()
            raise
        return list(map(NOTE_WIRE.from_proto, response.notes))

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence."""
        request = ReadChangesRequest(after_sequence=after_sequence, max_count=max_count)
        return changes_from_proto(await self._call(self._admin.ReadChanges, request, deadline))

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the index, or a part of a large one."""
        request = pb.DeleteIndexRequest(
            index_id=index_id, shard_map_version=self._shard_map_version
        )
        response = await self._call(self._stub.DeleteIndex, request, deadline)
        return DELETED_INDEX_WIRE.from_proto(response)

    async def list_item_ids(
        self,
        index_id: str,
        after: str,
        max_count: int,
        deadline: Deadline,
        selection: ItemSelection | None = None,
    ) -> Sequence[str]:
        """Returns ids after that one."""
        request = pb.ListItemIdsRequest(
            index_id=index_id,
            after=after,
            max_count=max_count,
            selection=None if selection is None else SELECTION_WIRE.to_proto(selection),
        )
        response: pb.ListItemIdsResponse = await self._call(
            self._stub.ListItemIds, request, deadline
        )
        return list(response.item_ids)

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the index."""
        request = pb.DescribeShardIndexRequest(
            index_id=index_id, shard_map_version=self._shard_map_version
        )
        return DESCRIPTION_WIRE.from_proto(
            await self._call(self._stub.DescribeShardIndex, request, deadline)
        )

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id."""
        request = pb.ListShardIndexesRequest(after=after, max_count=max_count, index_ids=index_ids)
        response: pb.ListShardIndexesResponse = await self._call(
            self._stub.ListShardIndexes, request, deadline
        )
        return list(map(SUMMARY_WIRE.from_proto, response.indexes))

    async def _call(
        self, method: Callable[..., Awaitable[Response]], request: object, deadline: Deadline
    ) -> Response:
        return await call(method, request, service=self._name, timeout_seconds=deadline.left())
