"""Serves one shard in Postgres as a stage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.index_description import IndexPart, IndexSummary
from tandem.contract.limits import MAX_PAGE_SIZE, check_batch_size
from tandem.contract.search_path import KeywordState
from tandem.errors import SequenceNotReached
from tandem.local.shard.metrics import STAGE_DURATION
from tandem.remote.index_engine import EngineSettings, EngineShard
from tandem.remote.pgvector.connections import Connection, Connections
from tandem.remote.pgvector.searches import INDEX_TYPE, index_row, neighbours, searched
from tandem.remote.pgvector.standbys import note_standby_lag
from tandem.remote.pgvector.tables import Tables, record_of
from tandem.remote.pgvector.writes import committed, dropped, fenced
from tandem.stages.changes import ChangePage, ItemChange
from tandem.stages.item_write import Committed, Delete, Fence, Upsert
from tandem.stages.items import Deleted, FetchedItem, FetchedItems, ItemsQuery
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.retrieval import ShardDescription, ShardQuery
from tandem.stages.shard_answer import ShardAnswer

_CHECK_SECONDS = 3.0
_POLL_SECONDS = 0.05
# Time to report, before the deadline, that the sequence was not reached.
_ANSWER_SECONDS = 0.02

_BYTES = "SELECT id, octet_length(head) + octet_length(content) FROM {items} WHERE id = ANY(%s)"
_ROWS = "SELECT id, head, {content} FROM {items} WHERE id = ANY(%s)"
_IDS = "SELECT id FROM {items} WHERE id > %s ORDER BY id LIMIT %s"
_STATE = "SELECT sequence, store_id, (SELECT min(sequence) FROM {changes}) FROM {shard}"
_CHANGES = """
SELECT sequence, index_id, item_id FROM {changes} WHERE sequence > %s ORDER BY sequence LIMIT %s
"""
_LIST = """
SELECT id, fingerprint, text_count, image_count FROM {indexes}
WHERE id > %(after)s AND (%(is_all)s OR id = ANY(%(among)s)) ORDER BY id LIMIT %(limit)s
"""


class PgvectorShard(EngineShard):
    """A shard in Postgres."""

    def __init__(self, settings: EngineSettings) -> None:
        self._place = settings.shard_number, settings.shard_count
        self._connections = Connections(settings.engine_url, settings.engine_connection_count)
        self._tables = Tables(settings.engine_namespace)

    async def open(self) -> None:
        """Connects, and makes the tables where they are missing."""
        work = partial(self._tables.make, *self._place)
        await self._connections.run(work, Deadline.after(_CHECK_SECONDS), "check")

    async def check(self) -> None:
        """Reads the shard's row, and how far standbys are behind; raises ServiceUnavailable."""
        deadline = Deadline.after(_CHECK_SECONDS)
        await self._connections.run(self._tables.stamp, deadline, "check")
        await self._connections.run(note_standby_lag, deadline, "standbys")

    async def close(self) -> None:
        """Closes the connections; no call may be in flight."""
        await self._connections.close()

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""
        start_time = time.perf_counter()
        work = partial(searched, query, self._tables)
        while True:
            with STAGE_DURATION.labels("search").time():
                answer = await self._connections.run(work, deadline, "search")
            if (applied := answer.applied_sequence) >= query.minimum_sequence:
                return replace(answer, search_seconds=time.perf_counter() - start_time)
            if deadline.left() < _ANSWER_SECONDS + _POLL_SECONDS:
                raise SequenceNotReached(minimum=query.minimum_sequence, applied=applied)
            # Without a connection: anyone can make a token of a sequence that never comes.
            await asyncio.sleep(_POLL_SECONDS)

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours among the items nearest to the query and to each candidate."""
        work = partial(neighbours, query, self._tables)
        with STAGE_DURATION.labels("neighbours").time():
            return await self._connections.run(work, deadline, "neighbours")

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items of the query, as many as the shard reads at once."""
        work = partial(self._get, query)
        with STAGE_DURATION.labels("read").time():
            return await self._connections.run(work, deadline, "read")

    async def write(self, write: Upsert | Delete, deadline: Deadline) -> Committed:
        """Stores or deletes all items or none, durable and searchable."""
        work = partial(committed, write, self._tables)
        # Whether a write is on disk whose answer was lost, its request id alone tells.
        may_repeat = bool(write.request_id)
        with STAGE_DURATION.labels("commit").time():
            return await self._connections.run(work, deadline, "write", may_repeat=may_repeat)

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence."""

        async def read(connection: Connection) -> ChangePage:
            [(sequence, store_id, first)] = await self._rows(connection, _STATE, [])
            is_kept = 0 <= after_sequence <= sequence and (first or 0) <= after_sequence + 1
            rows = await self._rows(connection, _CHANGES, [after_sequence, max_count])
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
        return await self._connections.run(
            lambda connection: fenced(self._tables, connection, fence), deadline, "fence"
        )

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the whole index."""
        work = partial(dropped, check_index_id(index_id), self._tables)
        return await self._connections.run(work, deadline, "drop", may_repeat=False)

    async def list_item_ids(
        self, index_id: str, after: str, max_count: int, deadline: Deadline
    ) -> Sequence[str]:
        """Returns ids after that one, in byte order."""
        check_index_id(index_id)
        check_batch_size("item_ids", max_count, MAX_PAGE_SIZE)
        if after:
            check_item_id(after)

        async def listed(connection: Connection) -> Sequence[str]:
            await index_row(index_id, self._tables, connection)
            rows = await self._rows(connection, _IDS, [after, max_count], index_id)
            return [item_id for (item_id,) in rows]

        return await self._connections.run(listed, deadline, "list_ids")

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the index."""
        work = partial(index_row, check_index_id(index_id), self._tables)
        index = await self._connections.run(work, deadline, "describe")
        parts = [
            IndexPart(modality=each, item_count=index.item_count(each), index_type=INDEX_TYPE)
            for each in Modality
        ]
        return ShardDescription(index.fingerprint, index.dimension, parts, KeywordState.DISABLED)

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id, in byte order; only of `index_ids` if there are."""
        check_batch_size("indexes", max_count, MAX_PAGE_SIZE)
        if index_ids:
            check_batch_size("index_ids", len(index_ids), MAX_PAGE_SIZE)
        among = list(index_ids)
        values = {"after": after, "is_all": not among, "among": among, "limit": max_count}
        work = partial(self._rows, statement=_LIST, values=values)
        rows = await self._connections.run(work, deadline, "list")
        return [IndexSummary(*row) for row in rows]

    async def _get(self, query: ItemsQuery, connection: Connection) -> FetchedItems:
        index_id = query.index_id
        index = await index_row(index_id, self._tables, connection)
        sizes = dict(await self._rows(connection, _BYTES, [list(query.item_ids)], index_id))
        read = list(query.first_within(sizes))
        content = "content" if query.content_included else "NULL"
        rows = await self._rows(connection, _ROWS, [read], index_id, content=content)
        found = {item_id: _fetched(query, item_id, *parts) for item_id, *parts in rows}
        return FetchedItems(
            {item_id: found[item_id] for item_id in read if item_id in found},
            len(read),
            index.fingerprint if query.encodings_included else "",
        )

    async def _rows(
        self,
        connection: Connection,
        statement: str,
        values: Sequence[object] | Mapping[str, object],
        index_id: str = "",
        **parts: str,
    ) -> Sequence[tuple[Any, ...]]:
        found = await connection.execute(
            self._tables.of(statement, index_id, **parts), values, binary=True
        )
        return await found.fetchall()


def _fetched(query: ItemsQuery, item_id: str, head: bytes, content: bytes | None) -> FetchedItem:
    record = record_of(query.index_id, item_id, head)
    return FetchedItem(
        None if content is None else record.content(content),
        record.attributes(),
        record.encoding() if query.encodings_included else None,
    )
