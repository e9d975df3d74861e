"""Serves what a move needs of IndexAdminService: the change log and a fence."""

import math

import grpc

from tandem.contract.deadline import Deadline
from tandem.contract.field_wire import duration_from_proto
from tandem.contract.limits import MAX_PAGE_SIZE, check_batch_size
from tandem.errors import RequestMalformed
from tandem.stages.item_write import Fence
from tandem.stages.shard import FollowedShard
from tandem.v1 import index_admin_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceServicer
from tandem.wire.items import CHANGE_PAGE_WIRE, CHANGE_WIRE

MAX_FENCE_SECONDS = 10
"""A mover that dies in between keeps writers waiting for so long."""


class MoveServicer(IndexAdminServiceServicer):
    """Lets a mover follow a shard, and fence its writes."""

    def __init__(self, followed: FollowedShard, shard_map_version: int) -> None:
        self._followed = followed
        self._shard_map_version = shard_map_version

    async def ReadChanges(
        self, request: pb.ReadChangesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ReadChangesResponse:
        """Returns a page of the change log."""
        check_batch_size("changes", request.max_count, MAX_PAGE_SIZE)
        page = await self._followed.changes(
            request.after_sequence, request.max_count, _deadline(context)
        )
        return CHANGE_PAGE_WIRE.to_proto(
            page,
            changes=map(CHANGE_WIRE.to_proto, page.changes or ()),
            is_trimmed=page.changes is None,
            shard_map_version=self._shard_map_version,
        )

    async def FenceWrites(
        self, request: pb.FenceWritesRequest, context: grpc.aio.ServicerContext
    ) -> pb.FenceWritesResponse:
        """Refuses writes from now on, in the order of commits."""
        seconds = duration_from_proto(request.duration)
        if not 0 <= seconds <= MAX_FENCE_SECONDS:
            raise RequestMalformed(
                why=f"duration is {seconds:g} s",
                remedy=f"send 0 to {MAX_FENCE_SECONDS} seconds",
            )
        sealed = request.sealed_sequence if request.HasField("sealed_sequence") else None
        committed = await self._followed.fence(Fence(seconds, sealed), _deadline(context))
        return pb.FenceWritesResponse(sequence=committed.sequence, is_sealed=committed.is_sealed)


def _deadline(context: grpc.aio.ServicerContext) -> Deadline:
    return Deadline.of_call(context, default_seconds=math.inf)
