"""Serves one shard in Postgres as a stage."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import IndexSummary
from tandem.contract.search.item_changes import ItemSelection
from tandem.errors import SequenceNotReached
from tandem.remote.engine_shard import EngineShard
from tandem.remote.index_engine import EngineSettings
from tandem.remote.pgvector.conditions import selected
from tandem.remote.pgvector.connections import Servers, Session
from tandem.remote.pgvector.searches import INDEX_TYPE, searched
from tandem.remote.pgvector.standbys import note_standby_lag
from tandem.remote.pgvector.tables import check, index_row, item_rows, make, record_of
from tandem.remote.pgvector.writes import committed, dropped, fenced, noted
from tandem.stages.changes import ChangePage, ItemChange
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Committed, Fence, ShardWrite
from tandem.stages.items import Deleted, FetchedItem, FetchedItems, ItemsQuery
from tandem.stages.notes import Note, PutNote, SetWriter
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import check_ids_page, check_indexes_page
from tandem.stages.shard_answer import ShardAnswer

_CHECK_SECONDS = 3.0
_POLL_SECONDS = 0.05
# Time to report, before the deadline, that the sequence was not reached.
_ANSWER_SECONDS = 0.02

_BYTES = "octet_length(items.head) + octet_length(items.content)"
_IDS = "SELECT id FROM {items} WHERE id > %(after)s AND {chosen} ORDER BY id LIMIT %(max_count)s"
_STATE = "SELECT sequence, store_id, (SELECT min(sequence) FROM {changes}) FROM {shard}"
_CHANGES = """
SELECT sequence, index_id, item_id FROM {changes} WHERE sequence > %s ORDER BY sequence LIMIT %s
"""
_NOTES = """
SELECT key, value, revision FROM {notes} WHERE starts_with(key, %s) ORDER BY key
"""
_LIST = """
SELECT id, fingerprint, text_count, image_count FROM {indexes}
WHERE id > %s AND (id = ANY(%s) OR %s) ORDER BY id LIMIT %s
"""


class PgvectorShard(EngineShard):
    """A shard in Postgres."""

    index_type = INDEX_TYPE

    def __init__(self, settings: EngineSettings) -> None:
        self._place = settings.shard_number, settings.shard_count
        self._servers = Servers(settings)
        self._connections = self._servers.primary

    async def open(self) -> None:
        """Connects, and makes the tables where they never were."""
        work = partial(make, *self._place)
        await self._connections.run(work, Deadline.after(_CHECK_SECONDS), "check")

    async def check(self) -> None:
        """Reads the shard's row, and how far standbys are behind; raises ServiceUnavailable."""
        await self._servers.check(check)
        deadline = Deadline.after(_CHECK_SECONDS)
        await self._connections.run(note_standby_lag, deadline, "standbys")

    async def close(self) -> None:
        """Closes the connections; no call may be in flight."""
        await self._servers.close()

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""
        start_time = time.perf_counter()
        work = partial(searched, query)
        while True:
            answer = await self._servers.read(work, deadline, "search")
            if (applied := answer.applied_sequence) >= query.minimum_sequence:
                return replace(answer, search_seconds=time.perf_counter() - start_time)
            if deadline.left() < _ANSWER_SECONDS + _POLL_SECONDS:
                raise SequenceNotReached(minimum=query.minimum_sequence, applied=applied)
            # Without a connection: anyone can make a token of a sequence that never comes.
            await asyncio.sleep(_POLL_SECONDS)

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items of the query, as many as the shard reads at once."""
        work = partial(_fetched, query)
        return await self._connections.run(work, deadline, "read")

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        """Stores or deletes all items or none, durable and searchable."""
        if isinstance(write, PutNote | SetWriter):
            work = partial(noted, write)
            return await self._connections.run(work, deadline, "note", may_repeat=False)
        work = partial(committed, write)
        # Whether a write is on disk whose answer was lost, its request id alone tells.
        may_repeat = bool(write.request_id)
        return await self._connections.run(work, deadline, "write", may_repeat=may_repeat)

    async def notes(self, prefix: str, deadline: Deadline) -> Sequence[Note]:
        """Returns the notes whose keys begin so, by key."""

        async def read(session: Session) -> Sequence[Note]:
            return [Note(*row) for row in await session.rows(_NOTES, [prefix])]

        return await self._connections.run(read, deadline, "notes")

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence."""

        async def read(session: Session) -> ChangePage:
            [(sequence, store_id, first)] = await session.rows(_STATE)
            is_kept = 0 <= after_sequence <= sequence and (first or 0) <= after_sequence + 1
            rows = await session.rows(_CHANGES, [after_sequence, max_count])
            return ChangePage(
                changes=[ItemChange(*row) for row in rows] if is_kept else None,
                sequence=sequence,
                store_id=store_id,
                shard_number=self._place[0],
                shard_count=self._place[1],
            )

        return await self._connections.run(read, deadline, "changes")

    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins, seals or ends a fence, for every index_svc of the shard."""
        return await self._connections.run(partial(fenced, fence), deadline, "fence")

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the whole index."""
        work = partial(dropped, check_index_id(index_id))
        return await self._connections.run(work, deadline, "drop", may_repeat=False)

    async def list_item_ids(
        self,
        index_id: str,
        after: str,
        max_count: int,
        deadline: Deadline,
        selection: ItemSelection | None = None,
    ) -> Sequence[str]:
        """Returns ids after that one, in byte order."""
        check_ids_page(index_id, after, max_count)

        async def listed(session: Session) -> Sequence[str]:
            await index_row(index_id, session)
            values: dict[str, object] = {"after": after, "max_count": max_count}
            chosen = "true" if selection is None else selected(selection, values)
            rows = await session.rows(_IDS, values, index_id, chosen=chosen)
            return [item_id for (item_id,) in rows]

        return await self._connections.run(listed, deadline, "list_ids")

    async def _index(
        self, index_id: str, deadline: Deadline
    ) -> tuple[IndexInfo, Mapping[Modality, int]]:
        work = partial(index_row, index_id)
        index = await self._connections.run(work, deadline, "describe")
        return index, index.counts

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id, in byte order; only of `index_ids` if there are."""
        check_indexes_page(max_count, index_ids)
        values = [after, list(index_ids), not index_ids, max_count]
        rows = await self._connections.run(
            lambda session: session.rows(_LIST, values), deadline, "list"
        )
        return [IndexSummary(*row) for row in rows]


async def _fetched(query: ItemsQuery, session: Session) -> FetchedItems:
    index_id = query.index_id
    _, sizes = await item_rows(index_id, query.item_ids, _BYTES, session)
    read = query.first_within(dict(sizes))
    parts = f"items.head, {'items.content' if query.content_included else 'NULL'}"
    fingerprint, rows = await item_rows(index_id, read, parts, session)
    found = {}
    for item_id, head, content in rows:
        record = record_of(index_id, item_id, head)
        found[item_id] = FetchedItem(
            None if content is None else record.content(content),
            record.attributes(),
            record.encoding() if query.encodings_included else None,
        )
    return FetchedItems(
        {item_id: found[item_id] for item_id in read if item_id in found},
        len(read),
        fingerprint if query.encodings_included else "",
    )
