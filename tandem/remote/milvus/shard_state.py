"""Keeps what all services of a shard agree on in one object, replaced by compare-and-swap.

Every write reads it: what followers asked for, fences, the shard's notes, and so who may write.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tandem.contract.generation_ids import alias_of
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.stages.item_write import ItemsWrite, refused_by_fence
from tandem.stages.notes import WRITER_PREFIX, Note, WriterRule


@dataclass(frozen=True, slots=True)
class EngineState:
    """All its numbers but revisions are Milvus' timestamps."""

    store_id: str = ""
    begin: int = 0
    """Since when writes are noted for followers, and kept; 0 if they are not."""
    read: int = 0
    """Until when those are read, so that none may get an earlier number."""
    fence: int = 0
    """When the last fence began."""
    fence_end: int = 0
    is_sealed: bool = False
    notes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Value and revision by key."""

    def note(self, key: str) -> Note | None:
        """Returns the note of that key."""
        return Note(key, *self.notes[key]) if key in self.notes else None

    def check_fence(self, sequence: int) -> None:
        """Raises ServiceUnavailable if a fence refuses a write of that time."""
        if self.is_sealed or sequence < self.fence_end:
            raise refused_by_fence()

    def allowing(self, write: ItemsWrite) -> int:
        """Returns the revision of the rule that allows the write; raises WriterRefused."""
        rule = self.note(WRITER_PREFIX + write.index_id)
        WriterRule.of(rule).check(write.index_id, write.term)
        return rule.revision if rule else 0

    def other_generations(self, index_id: str) -> set[str]:
        """Returns the other ones of its alias: the first, and those that have a rule."""
        ruled = (each.removeprefix(WRITER_PREFIX) for each in self.notes)
        alias = alias_of(index_id)
        return {alias, *(each for each in ruled if alias_of(each) == alias)} - {index_id}


class SharedState:
    """Reads and replaces the state of one shard."""

    def __init__(self, objects: ItemObjects, key: str) -> None:
        """Takes the key of its object."""
        self._objects, self._key = objects, key

    async def read(self) -> EngineState:
        """Returns the state as it is now, whichever service stored it."""
        [stored] = await self._objects.get([self._key])
        return _state(stored)

    async def change(self, changed: Callable[[EngineState], EngineState]) -> EngineState:
        """Changes the newest state, and returns what it stored; raises what `changed` does."""
        while True:
            [stored] = await self._objects.get([self._key])
            state = changed(_state(stored))
            # Releases before notes know no such field.
            data = {
                name: value for name, value in asdict(state).items() if value or name != "notes"
            }
            if await self._objects.swap(self._key, stored, json.dumps(data).encode()):
                return state


def _state(stored: bytes | None) -> EngineState:
    return EngineState() if stored is None else EngineState(**json.loads(stored))
