"""Deletes the records that no row names any longer, however their write ended.

A record is written before the row that names it by its version. So each write first leaves a
*note* of the versions that it makes and replaces. Minutes later, when no call can use them any
more, the note is settled: the records of those versions that no row names are deleted.
"""

import asyncio
import heapq
import json
import logging
import time
import uuid
from collections.abc import Sequence

from tandem.contract.deadline import Deadline
from tandem.errors import IndexNotFound, ServiceUnavailable
from tandem.remote.milvus.collections import (
    Collections,
    IndexCollection,
    any_of_ids,
    record_key,
)
from tandem.remote.milvus.connection import ALL_WRITES

_LOG = logging.getLogger(__name__)

GRACE_SECONDS = 120.0
"""From a write's deadline until its note is settled: longer than any read takes or lags behind."""
_SETTLE_SECONDS = 30.0
# Of which each waits about 200 ms for Milvus.
_MOST_AT_ONCE = 16


class Notes:
    """Settles its own notes, and those that were there at its start: of services that died."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._objects = collections.objects
        self._folder = f"{collections.namespace}-notes"
        self._due: list[tuple[float, str]] = []
        self._settling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begins to settle notes as they become due."""
        for name in await self._objects.names(self._folder):
            # A clock of another machine says nothing here, so the time begins again.
            self._remember(float(name.partition("_")[0]), name)
        self._settling = self._settling or asyncio.create_task(self._settle_due())

    async def close(self) -> None:
        """Leaves what is not due to the next start."""
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)

    async def leave(
        self,
        collection: IndexCollection,
        item_ids: Sequence[str],
        versions: Sequence[int] | None,
        deadline: Deadline,
    ) -> None:
        """Leaves a note of the versions of these items; None for all records of the index."""
        seconds = max(deadline.left(), 0.0) + GRACE_SECONDS
        name = f"{seconds:.0f}_{uuid.uuid4().hex}"
        note = [collection.index_id, collection.folder, item_ids, versions]
        await self._objects.put([(f"{self._folder}/{name}", json.dumps(note).encode())])
        self._remember(seconds, name)

    def _remember(self, seconds: float, name: str) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, name))

    async def _settle_due(self) -> None:
        while True:
            due: list[str] = []
            while self._due and self._due[0][0] <= time.monotonic() and len(due) < _MOST_AT_ONCE:
                due.append(heapq.heappop(self._due)[1])
            await asyncio.gather(*map(self._settle, due))
            if not due:
                await asyncio.sleep(1.0)

    async def _settle(self, name: str) -> None:
        key = f"{self._folder}/{name}"
        try:
            [note] = await self._objects.get([key])
            if note is not None:  # no other service settled it
                await self._delete_unnamed(*json.loads(note))
                await self._objects.delete([key])
        except Exception as error:  # one note's fault, for example damage, must not end the loop
            _LOG.warning("note of a write not settled", extra={"why": str(error)})
            self._remember(GRACE_SECONDS, name)

    async def _delete_unnamed(
        self, index_id: str, folder: str, item_ids: Sequence[str], versions: Sequence[int] | None
    ) -> None:
        deadline = Deadline.after(_SETTLE_SECONDS)
        try:
            collection = await self._collections.get(index_id, deadline)
            is_there = collection.folder == folder
            if is_there and versions:
                named = await collection.versions(item_ids, deadline, ALL_WRITES)
                row_count = await collection.count(any_of_ids(item_ids), deadline, ALL_WRITES)
                if row_count != len(named):
                    # Killed between two messages of a write. Writing the item again ends it.
                    raise ServiceUnavailable(service="index", why="Milvus has an item twice")
                unnamed = set(versions) - set(named.values())
                await self._objects.delete(record_key(folder, each) for each in unnamed)
        except IndexNotFound:
            is_there = False
        if versions is None and not is_there:
            await self._objects.delete_folder(folder)
