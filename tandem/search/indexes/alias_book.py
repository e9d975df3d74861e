"""Keeps the records of all aliases, as shard 0 has them: which generation serves."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import lru_cache

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded, NoteChanged, ServiceUnavailable, TandemError
from tandem.platform.files.json_object import object_of
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.coverage import SearchCoverage, refusal_of
from tandem.search.metrics import ALIAS_AGE
from tandem.stages.aliases import ALIAS_PREFIX, AliasRecord
from tandem.stages.notes import Note, PutNote
from tandem.stages.shard import Shard

log = get_logger()

_POLL_SECONDS = 0.5
_READ_SECONDS = 1.0
_AWAY = (ServiceUnavailable, DeadlineExceeded)


class AliasBook:
    """Reads the notes of shard 0 again and again, and keeps the last that it read."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """Takes `shards` by number; reads nothing before `begin`."""
        self._shards = shards
        self._notes: Mapping[str, Note] = {}
        self._records: Mapping[str, AliasRecord | TandemError] = {}
        self.has_begun = False
        """Whether notes were read."""
        self._lock = asyncio.Lock()
        self._read_time = time.monotonic()
        """When the last read of shard 0 began."""
        self._polling: asyncio.Task[None] | None = None
        self._copying: set[asyncio.Task[None]] = set()

    async def begin(self, deadline: Deadline) -> None:
        """Reads the notes if none were read yet, and again from then on, until `close`.

        Without shard 0 the newest copies on the other shards count. Raises ShardsMissing, or
        DeadlineExceeded, if none has answered yet.
        """
        if self._polling is None or self._polling.done():
            # In a context of its own: it is no part of the call that happens to be the first.
            self._polling = asyncio.create_task(self._poll(), context=Context())
        async with self._lock:
            if not self.has_begun:
                await self._first_read(deadline)

    async def close(self) -> None:
        """Ends the copies of what was put, and reads no longer."""
        await self.copied()
        if self._polling is not None:
            self._polling.cancel()

    def record(self, alias: str) -> AliasRecord:
        """Returns the last known record, or what holds for an index without one.

        Raises InternalFault for a damaged one.
        """
        found = self._records.get(alias)
        if isinstance(found, TandemError):
            raise found
        return _without_record(alias) if found is None else found

    def records(self) -> list[AliasRecord]:
        """Returns the last known records, without damaged ones."""
        return [each for each in self._records.values() if isinstance(each, AliasRecord)]

    async def refresh(self, deadline: Deadline) -> None:
        """Reads shard 0 again, or raises its error and keeps what is known."""
        asked_time = time.monotonic()
        async with self._lock:
            if self._read_time < asked_time:
                await self._read(deadline)

    async def put(self, record: AliasRecord, deadline: Deadline) -> AliasRecord:
        """Replaces the record of that revision on shard 0, and returns the new one.

        The other shards get copies, as far as they answer. Raises NoteChanged if another process
        replaced it meanwhile, and shard 0's error, after which it may have been replaced.
        """
        async with self._lock:
            before = self.record(record.alias)
            fresh = replace(
                record,
                switch_count=before.switch_count + (record.serving != before.serving),
                revision=record.revision + 1,
            )
            write = PutNote(fresh.key, fresh.value, record.revision)
            await self._shards[0].write(write, deadline)
            note = Note(fresh.key, fresh.value, fresh.revision)
            self._keep({**self._notes, note.key: note})
        for shard in self._shards[1:]:
            task = asyncio.create_task(_copy(shard, note), context=Context())
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)
        return fresh

    async def copied(self) -> None:
        """Returns once the copies of what was put are tried."""
        await asyncio.gather(*self._copying)

    async def _poll(self) -> None:
        fault = ""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self.refresh(Deadline.after(_READ_SECONDS))
                fault = ""
            except Exception as error:  # none may end it
                if str(error) != fault:
                    fault = str(error)
                    log.warning("aliases are not read; the last known ones stay", cause=fault)
            ALIAS_AGE.set(time.monotonic() - self._read_time)

    async def _read(self, deadline: Deadline) -> None:
        began_time = time.monotonic()
        self._keep(await _notes_of(self._shards[0], deadline))
        self._read_time = began_time

    async def _first_read(self, deadline: Deadline) -> None:
        try:
            await self._read(Deadline.after(min(deadline.left() / 2, _READ_SECONDS)))
        except _AWAY as error:
            reads = [_notes_of(each, deadline) for each in self._shards[1:]]
            answers = await fan_out(*(answer_or_error(each, *_AWAY) for each in reads))
            copies = [each for each in answers if not isinstance(each, TandemError)]
            if not copies:
                errors = (each for each in (error, *answers) if isinstance(each, TandemError))
                missing = dict(enumerate(errors))
                coverage = SearchCoverage(len(missing), 0, None, missing)
                raise refusal_of(coverage, "the aliases", is_demanded=False) from None
            notes = [_copied(each) for found in copies for each in found.values()]
            notes.sort(key=lambda note: note.revision)
            self._keep({note.key: note for note in notes})  # the newest of each
            log.warning("aliases are read from copies", cause=error.message)

    def _keep(self, notes: Mapping[str, Note]) -> None:
        """Keeps the notes, and reads the records of those that changed."""
        records: dict[str, AliasRecord | TandemError] = {}
        for key, note in notes.items():
            alias = key.removeprefix(ALIAS_PREFIX)
            old = self._records.get(alias, AliasRecord.of_index(alias))
            records[alias] = old
            if self._notes.get(key) == note:
                continue
            try:
                records[alias] = new = AliasRecord.of_note(note)
            except TandemError as error:
                log.error("alias refused", alias=alias, cause=error.message)
                records[alias] = error.kept()
                continue
            if isinstance(old, AliasRecord) and new.serving != old.serving:
                log.info("generation serves", index_id=new.serving, before=old.serving)
        self._notes, self._records, self.has_begun = notes, records, True


# Made for each call otherwise, of most of which this is all that there is to know.
_without_record = lru_cache(1024)(AliasRecord.of_index)


async def _notes_of(shard: Shard, deadline: Deadline) -> Mapping[str, Note]:
    found = await shard.notes(ALIAS_PREFIX, deadline)
    return {note.key: note for note in found if note.value}


def _copied(note: Note) -> Note:
    """Returns a copy of a note of shard 0 with its revision there, as far as it says it."""
    with suppress(ValueError):
        revision = object_of(note.value, note.key).get("revision")
        return replace(note, revision=revision if isinstance(revision, int) else 0)
    return replace(note, revision=0)


async def _copy(shard: Shard, note: Note) -> None:
    """Keeps a note of shard 0 on another shard, unless that has a newer copy."""
    deadline = Deadline.after(_READ_SECONDS)
    with suppress(TandemError):
        while True:
            known = await shard.note(note.key, deadline)
            if _copied(known).revision >= note.revision:
                return
            # Two copies may be made at once; the newer one is the last.
            with suppress(NoteChanged):
                await shard.write(PutNote(note.key, note.value, known.revision), deadline)
