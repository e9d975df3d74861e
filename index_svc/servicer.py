"""Implements IndexService."""

import math
from functools import partial

import grpc

from tandem.chassis.process.side_thread import converted
from tandem.contract.deadline import Deadline
from tandem.contract.index_description import SUMMARY_WIRE
from tandem.contract.search.item_changes_wire import SELECTION_WIRE
from tandem.errors import ShardMapMismatch
from tandem.stages.shard import Shard
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceServicer
from tandem.wire.items import (
    DELETE_WIRE,
    DELETED_INDEX_WIRE,
    ITEMS_QUERY_WIRE,
    NOTE_WIRE,
    PATCH_ITEMS_WIRE,
    PUT_NOTE_WIRE,
    SET_WRITER_WIRE,
    items_to_proto,
    upsert_from_proto,
)
from tandem.wire.neighbours import neighbour_query_from_proto, neighbours_to_proto
from tandem.wire.retrieval import DESCRIPTION_WIRE, answer_to_proto, query_from_proto


class IndexServicer(IndexServiceServicer):
    """Serves a shard over gRPC; the chassis maps its errors to statuses."""

    def __init__(self, shard: Shard, *, shard_map_version: int = 1) -> None:
        """Accepts calls by that version of the shard map alone."""
        self._shard = shard
        self._shard_map_version = shard_map_version

    async def SearchEmbeddings(
        self, request: pb.SearchEmbeddingsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchEmbeddingsResponse:
        """Finds this shard's nearest items for each query."""
        self._check_shard_map(request.shard_map_version)
        query = await converted(partial(query_from_proto, request))
        return answer_to_proto(await self._shard.search(query, _deadline(context)))

    async def UpsertItems(
        self, request: pb.UpsertItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.UpsertItemsResponse:
        """Stores all items or none; answers once they are durable and searchable."""
        self._check_shard_map(request.shard_map_version)
        upsert = await converted(partial(upsert_from_proto, request))
        committed = await self._shard.write(upsert, _deadline(context))
        return pb.UpsertItemsResponse(sequence=committed.sequence)

    async def PatchItems(
        self, request: pb.PatchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.PatchItemsResponse:
        """Changes attributes of items; answers once that is durable and searchable."""
        self._check_shard_map(request.shard_map_version)
        patch = await converted(partial(PATCH_ITEMS_WIRE.from_proto, request), is_slow=True)
        committed = await self._shard.write(patch, _deadline(context))
        return pb.PatchItemsResponse(sequence=committed.sequence, failures=committed.failures)

    async def DeleteItems(
        self, request: pb.DeleteItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteItemsResponse:
        """Deletes all of the items by id, or none."""
        self._check_shard_map(request.shard_map_version)
        committed = await self._shard.write(DELETE_WIRE.from_proto(request), _deadline(context))
        return pb.DeleteItemsResponse(
            deleted_count=committed.deleted_count, sequence=committed.sequence
        )

    async def ReadNotes(
        self, request: pb.ReadNotesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ReadNotesResponse:
        """Returns the notes whose keys begin so."""
        notes = await self._shard.notes(request.prefix, _deadline(context))
        return pb.ReadNotesResponse(notes=map(NOTE_WIRE.to_proto, notes))

    async def PutNote(
        self, request: pb.PutNoteRequest, context: grpc.aio.ServicerContext
    ) -> pb.PutNoteResponse:
        """Replaces a note that no other process replaced meanwhile."""
        write = PUT_NOTE_WIRE.from_proto(request)
        committed = await self._shard.write(write, _deadline(context))
        return pb.PutNoteResponse(sequence=committed.sequence)

    async def SetWriter(
        self, request: pb.SetWriterRequest, context: grpc.aio.ServicerContext
    ) -> pb.SetWriterResponse:
        """Opens or closes an index to callers, in the order of commits."""
        self._check_shard_map(request.shard_map_version)
        write = SET_WRITER_WIRE.from_proto(request)
        committed = await self._shard.write(write, _deadline(context))
        return pb.SetWriterResponse(sequence=committed.sequence)

    async def DeleteIndex(
        self, request: pb.DeleteIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteIndexResponse:
        """Deletes an index, or as much of it as a few seconds allow."""
        self._check_shard_map(request.shard_map_version)
        dropped = await self._shard.delete_index(request.index_id, _deadline(context))
        return DELETED_INDEX_WIRE.to_proto(dropped)

    async def GetItems(
        self, request: pb.GetItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetItemsResponse:
        """Reads items by id, as many as fit into the response."""
        fetched = await self._shard.get(ITEMS_QUERY_WIRE.from_proto(request), _deadline(context))
        return items_to_proto(fetched)

    async def ListItemIds(
        self, request: pb.ListItemIdsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListItemIdsResponse:
        """Returns a page of the shard's ids."""
        item_ids = await self._shard.list_item_ids(
            request.index_id,
            request.after,
            request.max_count,
            _deadline(context),
            SELECTION_WIRE.from_proto(request.selection) if request.HasField("selection") else None,
        )
        return pb.ListItemIdsResponse(item_ids=item_ids)

    async def FindNeighbours(
        self, request: pb.FindNeighboursRequest, context: grpc.aio.ServicerContext
    ) -> pb.FindNeighboursResponse:
        """Finds the neighbours of a query and of its candidates."""
        self._check_shard_map(request.shard_map_version)
        query = await converted(partial(neighbour_query_from_proto, request), is_slow=True)
        found = await self._shard.find_neighbours(query, _deadline(context))
        return await converted(partial(neighbours_to_proto, found), is_slow=True)

    async def DescribeShardIndex(
        self, request: pb.DescribeShardIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeShardIndexResponse:
        """Describes the texts and the images of one index."""
        self._check_shard_map(request.shard_map_version)
        return DESCRIPTION_WIRE.to_proto(
            await self._shard.describe_index(request.index_id, _deadline(context))
        )

    async def ListShardIndexes(
        self, request: pb.ListShardIndexesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListShardIndexesResponse:
        """Returns a page of the shard's indexes."""
        found = await self._shard.list_indexes(
            request.after, request.max_count, list(request.index_ids), _deadline(context)
        )
        return pb.ListShardIndexesResponse(indexes=map(SUMMARY_WIRE.to_proto, found))

    def _check_shard_map(self, version: int) -> None:
        # Another map may put an item on another shard: written here, it would not be found.
        if version not in (0, self._shard_map_version):
            raise ShardMapMismatch(request_version=version, shard_version=self._shard_map_version)


def _deadline(context: grpc.aio.ServicerContext) -> Deadline:
    return Deadline.of_call(context, default_seconds=math.inf)
