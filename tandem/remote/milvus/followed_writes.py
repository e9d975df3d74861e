"""Notes what is written for a mover that follows, and refuses writes in its fences.

Milvus keeps no log of changes. From when a mover first asks for changes, each write leaves a note
of its items in the object store before it is acknowledged. What the mover said last is one object,
the state: every index_svc reads it again after a write and its note, so that of what was
acknowledged before a fence nothing is missing, however many services write.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from tandem.contract.deadline import Deadline
from tandem.remote.milvus.collections import Collections, IndexCollection
from tandem.remote.milvus.connection import Consistency
from tandem.stages.changes import ChangePage, ItemChange
from tandem.stages.item_write import Committed, Fence, refused_by_fence

_T = TypeVar("_T")

# Milvus' timestamps are milliseconds with 18 bits behind.
_SECOND = 1000 << 18
# A mover that has asked for no change for so long is given up, and nothing is noted for it.
_FOLLOWED = 86_400 * _SECOND


@dataclass(frozen=True, slots=True)
class MoveState:
    """Says what a mover asked for; all numbers are Milvus' timestamps."""

    store_id: str = ""
    begin: int = 0
    """Since when writes are noted, 0 if they are not."""
    read: int = 0
    """Until when notes are read, so that none may get an earlier number."""
    fence: int = 0
    """When the last fence began."""
    fence_end: int = 0
    is_sealed: bool = False


class FollowedWrites:
    """Keeps the notes of one namespace."""

    def __init__(self, collections: Collections) -> None:
        self._connection = collections.connection
        self._objects = collections.objects
        folder = f"{collections.namespace}-move"
        self._state_key, self._folder = f"{folder}/state", f"{folder}/notes"
        self._turns = asyncio.Lock()
        self._listed: Sequence[int] = ()

    async def state(self) -> MoveState:
        """Returns what a mover asked for last, in whichever process."""
        [stored] = await self._objects.get([self._state_key])
        return MoveState() if stored is None else MoveState(**json.loads(stored))

    async def seen(self, collection: IndexCollection) -> Consistency:
        """Returns what sees this process's writes, and all whose notes a mover has."""
        return self._connection.as_written(collection.name, (await self.state()).read)

    async def check(self, deadline: Deadline) -> None:
        """Raises ServiceUnavailable while a fence refuses writes."""
        state = await self.state()
        if state.is_sealed or state.fence_end:
            _check(state, await self._connection.timestamp(deadline))

    async def note(
        self, index_id: str, item_ids: Sequence[str], sequence: int, deadline: Deadline
    ) -> None:
        """Notes a write that ended before that time.

        Raises ServiceUnavailable if a fence began since: the write counts as refused.
        """
        state, number = await self.state(), 0
        while state.begin and sequence - state.read < _FOLLOWED and number <= state.read:
            number = await self._connection.timestamp(deadline)
            note = json.dumps([index_id, list(item_ids)]).encode()
            await self._objects.put([(self._key(number), note)])
            state = await self.state()
        _check(state, sequence)

    async def page(self, after: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns the notes after a number, whole, and forgets those before; notes from now on.

        After 0 it returns none, and says only what time it is.
        """
        return await self._in_turn(self._page(after, max_count, deadline))

    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins or ends a fence; seals if the fence that began at `sealed_sequence` stands."""
        return await self._in_turn(self._fence(fence, deadline))

    async def _page(self, after: int, max_count: int, deadline: Deadline) -> ChangePage:
        now = await self._connection.timestamp(deadline)
        state = await self.state()
        is_kept = 0 < state.begin <= after
        if not state.store_id:
            state = replace(state, store_id=uuid.uuid4().hex)
            await self._put(state)
        if after and not (is_kept and any(each > after for each in self._listed)):
            begin = state.begin if is_kept else now
            await self._put(replace(state, begin=begin, read=now))
            if not is_kept:  # A write that left no note has ended by now, and the copy sees it.
                now = await self._connection.timestamp(deadline)
                await self._put(replace(state, begin=begin, read=now))
            names = await self._objects.names(self._folder)
            numbers = sorted(int(name, 16) for name in names)
            self._listed = [each for each in numbers if each <= now] if is_kept else ()
            old = [each for each in numbers if each <= (after if is_kept else now)]
            await self._objects.delete(map(self._key, old))
        changes: list[ItemChange] = []
        found = [each for each in self._listed if each > after] if after else []
        notes = await self._objects.get(map(self._key, found[:max_count]))
        for number, note in zip(found, notes, strict=False):
            if note is not None and len(changes) < max_count:
                index_id, item_ids = json.loads(note)
                changes += [ItemChange(number, index_id, each) for each in item_ids]
        return ChangePage(
            changes=changes if is_kept else None,
            sequence=max(found, default=after) if is_kept else now,
            store_id=state.store_id,
            shard_number=0,
            shard_count=1,
        )

    async def _fence(self, fence: Fence, deadline: Deadline) -> Committed:
        now = await self._connection.timestamp(deadline)
        state = await self.state()
        if fence.sealed_sequence is None:
            end = now + int(fence.seconds * _SECOND) if fence.seconds else 0
            is_sealed = state.is_sealed and fence.seconds > 0
            state = replace(state, fence=now, fence_end=end, is_sealed=is_sealed)
        else:
            # First the seal, so that no write comes between it and the end of the fence.
            await self._put(replace(state, is_sealed=True))
            now = await self._connection.timestamp(deadline)
            stands = state.fence == fence.sealed_sequence and now < state.fence_end
            begin = 0 if stands else state.begin
            state = replace(state, fence_end=0, is_sealed=stands, begin=begin)
        await self._put(state)
        return Committed(state.fence, is_sealed=state.is_sealed)

    async def _put(self, state: MoveState) -> None:
        await self._objects.replace(self._state_key, json.dumps(asdict(state)).encode())

    async def _in_turn(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Does one thing at a time to the state, and to the end if the caller leaves."""

        async def done() -> _T:
            async with self._turns:
                return await work

        return await asyncio.shield(asyncio.ensure_future(done()))

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:016x}"


def _check(state: MoveState, sequence: int) -> None:
    if state.is_sealed or sequence < state.fence_end:
        raise refused_by_fence()
