"""Notes what is written for those who follow, and refuses writes in fences and against rules.

Milvus keeps no log of changes. From when a follower first asks for changes, each write leaves a
note of its items in the object store before it is acknowledged. Every index_svc reads the shard's
state again after a write and its note, so that of what was acknowledged before a fence or a rule
nothing is missing, however many services write.

Milvus takes nothing back either: a write that began before a rule and ended after it counts as
refused, and its items are noted as changed in the other generations, whose follower overwrites
them.
"""

import asyncio
import json
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tandem.contract.deadline import Deadline
from tandem.errors import WriterRefused
from tandem.remote.milvus.collections import Collections, IndexCollection
from tandem.remote.milvus.connection import Consistency
from tandem.remote.milvus.shard_state import EngineState, SharedState
from tandem.stages.changes import ChangePage, ItemChange
from tandem.stages.item_write import Committed, Fence, ItemsWrite
from tandem.stages.notes import Note, PutNote, SetWriter

_T = TypeVar("_T")

# Milvus' timestamps are milliseconds with 18 bits behind.
_SECOND = 1000 << 18
# Without a request for changes for so long, nothing is noted; half of it ends a follower.
_FOLLOWED = 86_400 * _SECOND
# Notes that one follower has read are kept for so long, for one that is behind.
_BEHIND = 60 * _SECOND


class FollowedWrites:
    """Keeps the notes of one namespace."""

    def __init__(self, collections: Collections) -> None:
        self._connection = collections.connection
        self._objects = collections.objects
        folder = f"{collections.namespace}-move"
        self._state = SharedState(self._objects, f"{folder}/state")
        self._folder = f"{folder}/notes"
        self._turns = asyncio.Lock()
        self._listed: Sequence[int] = ()
        self._listed_until = -1

    async def seen(self, collection: IndexCollection) -> Consistency:
        """Returns what sees this process's writes, and all whose notes a follower has."""
        state, until = await self._state.read(), self._listed_until
        # Where no other process listed later ones, no later time needs to be waited for.
        known = max([state.begin, *self._listed[-1:]]) if state.read == until else state.read
        return self._connection.as_written(collection.name, known)

    async def check(self, write: ItemsWrite | None, deadline: Deadline) -> int:
        """Returns the revision of the rule that allows the write; None means a drop.

        Raises ServiceUnavailable while a fence refuses writes, and WriterRefused.
        """
        state = await self._state.read()
        if state.is_sealed or state.fence_end:
            state.check_fence(await self._connection.timestamp(deadline))
        return 0 if write is None else state.allowing(write)

    async def note(
        self, index_id: str, item_ids: Sequence[str], sequence: int, deadline: Deadline
    ) -> EngineState:
        """Notes a write that ended before that time, and returns the state after it.

        Raises ServiceUnavailable if a fence began since: the write counts as refused.
        """
        state, number = await self._state.read(), 0
        while state.begin and sequence - state.read < _FOLLOWED and number <= state.read:
            number = await self._connection.timestamp(deadline)
            note = json.dumps([index_id, list(item_ids)]).encode()
            await self._objects.put([(self._key(number), note)])
            state = await self._state.read()
        state.check_fence(sequence)
        return state

    async def note_write(
        self,
        write: ItemsWrite,
        item_ids: Sequence[str],
        sequence: int,
        revision: int,
        deadline: Deadline,
    ) -> None:
        """Notes a write that a rule of that revision allowed; raises WriterRefused, too."""
        state = await self.note(write.index_id, item_ids, sequence, deadline)
        try:
            # A caller's write may have been overtaken by a follower between two rules.
            if state.allowing(write) != revision and not write.term:
                raise WriterRefused(index_id=write.index_id, who="callers")
        except WriterRefused:
            for each in state.other_generations(write.index_id):
                now = await self._connection.timestamp(deadline)
                await self.note(each, item_ids, now, deadline)
            raise

    async def notes(self, prefix: str) -> Sequence[Note]:
        """Returns the shard's own notes whose keys begin so, by key."""
        stored = (await self._state.read()).notes
        return [Note(key, *stored[key]) for key in sorted(stored) if key.startswith(prefix)]

    async def keep(self, write: PutNote | SetWriter, deadline: Deadline) -> Committed:
        """Keeps one of the shard's own notes; after a rule, returns the last number to follow.

        Raises ServiceUnavailable while a fence refuses writes, and what `replacing` does.
        """
        now = await self._connection.timestamp(deadline)

        def changed(state: EngineState) -> EngineState:
            state.check_fence(now)
            note = write.replacing(state.note(write.key))
            return replace(state, notes={**state.notes, note.key: [note.value, note.revision]})

        await self._state.change(changed)
        if isinstance(write, PutNote):
            return Committed(now)
        return Committed(max(await self._numbers(), default=0))

    async def page(self, after: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns the notes after a number, whole, and forgets older ones; notes from now on.

        After 0 it returns none, and says only where they end, or what time it is.
        """
        return await self._in_turn(self._page(after, max_count, deadline))

    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins or ends a fence; seals if the fence that began at `sealed_sequence` stands."""
        return await self._in_turn(self._fence(fence, deadline))

    async def _page(self, after: int, max_count: int, deadline: Deadline) -> ChangePage:
        now = await self._connection.timestamp(deadline)
        state = await self._state.read()
        is_followed = state.begin > 0 and now - state.read < _FOLLOWED // 2
        is_kept = is_followed and state.begin <= after
        if not state.store_id:
            name = uuid.uuid4().hex
            state = await self._state.change(
                lambda old: old if old.store_id else replace(old, store_id=name)
            )
        is_listed = is_kept and any(each > after for each in self._listed)
        if is_kept and (not is_listed or now - state.read > _BEHIND):
            is_listed = False
            await self._list(after, now)
        elif after and not is_followed:
            await self._state.change(lambda old: replace(old, begin=now, read=now))
            # A write that left no note has ended by now, and the copy sees it.
            now = await self._connection.timestamp(deadline)
            await self._state.change(lambda old: replace(old, begin=now))
            await self._list(now, now)
        elif is_followed and not after:
            now = max([state.begin, *await self._numbers()])
        found = [each for each in self._listed if each > after] if is_kept else []
        notes = await self._objects.get(map(self._key, found[:max_count]))
        changes: list[ItemChange] = []
        for number, note in zip(found, notes, strict=False):
            if note is not None and len(changes) < max_count:
                index_id, item_ids = json.loads(note)
                changes += [ItemChange(number, index_id, each) for each in item_ids]
        return ChangePage(
            changes=changes if is_kept else None,
            # Of an earlier list, more may follow.
            sequence=max(found, default=after) + is_listed if is_kept else now,
            store_id=state.store_id,
            shard_number=0,
            shard_count=1,
        )

    async def _list(self, after: int, now: int) -> None:
        """Lists all notes until now, and forgets those that no follower needs any longer."""
        await self._state.change(lambda old: replace(old, read=max(old.read, now)))
        numbers = await self._numbers()
        self._listed, self._listed_until = [each for each in numbers if each <= now], now
        if old_numbers := [each for each in numbers if each <= min(after, now - _BEHIND)]:
            # First, so that a follower which needs one of them learns that it is gone.
            begin = old_numbers[-1]
            await self._state.change(lambda old: replace(old, begin=max(old.begin, begin)))
            await self._objects.delete(map(self._key, old_numbers))

    async def _numbers(self) -> Sequence[int]:
        return sorted(int(name, 16) for name in await self._objects.names(self._folder))

    async def _fence(self, fence: Fence, deadline: Deadline) -> Committed:
        now = await self._connection.timestamp(deadline)

        def fenced(old: EngineState) -> EngineState:
            end = now + int(fence.seconds * _SECOND) if fence.seconds else 0
            is_sealed = old.is_sealed and fence.seconds > 0
            return replace(old, fence=now, fence_end=end, is_sealed=is_sealed)

        def sealed(old: EngineState) -> EngineState:
            stands = old.fence == fence.sealed_sequence and now < old.fence_end
            begin = 0 if stands else old.begin
            return replace(old, fence_end=0, is_sealed=stands, begin=begin)

        if fence.sealed_sequence is not None:
            # First the seal, so that no write comes between it and the end of the fence.
            await self._state.change(lambda old: replace(old, is_sealed=True))
            now = await self._connection.timestamp(deadline)
        state = await self._state.change(fenced if fence.sealed_sequence is None else sealed)
        return Committed(state.fence, is_sealed=state.is_sealed)

    async def _in_turn(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Does one thing at a time to the state, and to the end if the caller leaves."""

        async def done() -> _T:
            async with self._turns:
                return await work

        return await asyncio.shield(asyncio.ensure_future(done()))

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:016x}"
