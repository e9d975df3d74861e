"""Calls one shard as orchestrators and operators do, again while it does not answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tandem.chassis.calls.channels import call
from tandem.client.access import Access
from tandem.contract.deadline import Deadline
from tandem.contract.field_wire import duration_to_proto
from tandem.contract.index_description import IndexSummary
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.errors import DeadlineExceeded, IndexNotFound, Overloaded, ServiceUnavailable
from tandem.remote.shard import RemoteShard
from tandem.v1 import index_admin_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub

_T = TypeVar("_T")

_CALL_SECONDS = 30.0
_AGAIN_SECONDS = 120.0
_PAUSE_SECONDS = 0.2


class ShardLink:
    """Reads, writes and fences one shard."""

    def __init__(self, address: str, number: int, access: Access) -> None:
        """Needs a running event loop; the channel is to be closed."""
        self.address, self.number = address, number
        self.channel = access.open_aio_channel(address)
        # Whatever its shard map: the mover compares the versions itself.
        self.shard = RemoteShard(self.channel, number, shard_map_version=0)
        self._admin = IndexAdminServiceStub(self.channel)
        self._headers = dict(access.metadata())

    async def again(self, method: Callable[..., Awaitable[_T]], *arguments: object) -> _T:
        """Returns what the shard's method returns; repeats it while the shard is busy or away."""
        end_time = time.monotonic() + _AGAIN_SECONDS
        while True:
            try:
                return await method(*arguments, Deadline.after(_CALL_SECONDS))
            except (ServiceUnavailable, Overloaded, DeadlineExceeded):
                if time.monotonic() > end_time:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def changes(self, after_sequence: int, max_count: int) -> pb.ReadChangesResponse:
        """Returns a page of the change log, and which shard this is."""
        request = pb.ReadChangesRequest(after_sequence=after_sequence, max_count=max_count)
        return await self.again(self._operate, self._admin.ReadChanges, request)

    async def fence(
        self, seconds: float, sealed_sequence: int | None = None
    ) -> pb.FenceWritesResponse:
        """Refuses writes as FenceWrites does; not repeated, because a fence is short."""
        duration = duration_to_proto(seconds)
        request = pb.FenceWritesRequest(duration=duration, sealed_sequence=sealed_sequence)
        return await self._operate(self._admin.FenceWrites, request, Deadline.after(_CALL_SECONDS))

    async def summaries(self) -> dict[str, IndexSummary]:
        """Returns all indexes of the shard by id."""
        found: dict[str, IndexSummary] = {}
        is_last = False
        while not is_last:
            page = await self.again(
                self.shard.list_indexes, max(found, default=""), MAX_PAGE_SIZE, ()
            )
            found |= {each.index_id: each for each in page}
            is_last = len(page) < MAX_PAGE_SIZE
        return found

    async def drop(self, index_id: str) -> None:
        """Deletes an index if there is one."""
        try:
            while not (await self.again(self.shard.delete_index, index_id)).is_complete:
                pass
        except IndexNotFound:
            return

    async def _operate(
        self, method: Callable[..., Awaitable[_T]], request: object, deadline: Deadline
    ) -> _T:
        return await call(
            method,
            request,
            service=self.address,
            timeout_seconds=deadline.left(),
            headers=self._headers,
        )
