"""Reads a rerank's candidates from Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from tandem.contract.deadline import Deadline
from tandem.errors import IndexNotFound, ModelMismatch
from tandem.local.item_store.item_record import item_key, item_version
from tandem.remote.index_engine import EngineSettings
from tandem.remote.pgvector.connections import Connection, Connections
from tandem.remote.pgvector.tables import Tables, record_of
from tandem.stages.candidate_store import CandidateStore, StoredContent, StoredTokens

# The stage that asks has a deadline of its own; this one frees a connection that hangs.
_READ_SECONDS = 30.0
_CHECK_SECONDS = 3.0
_CHECK = "SELECT fingerprint FROM {indexes} LIMIT 1"
# One statement sees one state. A version is in the first bytes of a head.
_READ = """
SELECT indexes.fingerprint, items.id, {parts}
FROM {indexes} AS indexes LEFT JOIN {items} AS items ON items.id = ANY(%s) WHERE indexes.id = %s
"""
_VERSION_PARTS = "substring(items.head FOR 64), NULL"
_TOKEN_PARTS = "items.head, NULL"
_CONTENT_PARTS = "items.head, items.content"


class PgvectorCandidates(CandidateStore):
    """Reads candidates of indexes of one model."""

    def __init__(self, settings: EngineSettings, fingerprint: str) -> None:
        """Refuses indexes of other models than the one of the fingerprint."""
        self._fingerprint = fingerprint
        self._connections = Connections(settings.engine_url, settings.engine_connection_count)
        self._tables = Tables(settings.engine_namespace)

    async def open(self) -> None:
        """Connects; raises ServiceUnavailable, also before index_svc has made the tables."""

        async def checked(connection: Connection) -> None:
            await connection.execute(self._tables.of(_CHECK))

        deadline = Deadline.after(_CHECK_SECONDS)
        await self._connections.run(checked, deadline, "check")

    async def close(self) -> None:
        """Closes the connections; no call may be in flight."""
        await self._connections.close()

    async def versions(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> dict[str, int]:
        """Returns the versions of the items that exist."""
        rows = await self._read(_VERSION_PARTS, index_id, fingerprint, item_ids)
        return {each: item_version(each, item_key(index_id, each), head) for each, head, _ in rows}

    async def tokens(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> dict[str, StoredTokens]:
        """Returns tokens and versions of the items that exist, of one state of the store."""
        rows = await self._read(_TOKEN_PARTS, index_id, fingerprint, item_ids)
        records = (record_of(index_id, each, head) for each, head, _ in rows)
        return {each.item_id: StoredTokens(each.tokens(), each.version) for each in records}

    async def contents(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> dict[str, StoredContent]:
        """Returns contents and versions of the items that exist, of one state of the store."""
        rows = await self._read(_CONTENT_PARTS, index_id, fingerprint, item_ids)
        records = ((record_of(index_id, each, head), content) for each, head, content in rows)
        return {
            each.item_id: StoredContent(each.content(content), each.version)
            for each, content in records
        }

    async def _read(
        self, parts: str, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> Sequence[tuple[Any, ...]]:
        """Returns the id and the parts of each item that exists, in no order."""
        statement = self._tables.of(_READ, index_id, parts=parts)

        async def rows(connection: Connection) -> Sequence[tuple[Any, ...]]:
            try:
                found = await connection.execute(statement, [list(item_ids), index_id], binary=True)
            except psycopg.errors.UndefinedTable:
                return []  # There is no such index, or it is dropped just now.
            return await found.fetchall()

        deadline = Deadline.after(_READ_SECONDS)
        found = await self._connections.run(rows, deadline, "candidates")
        if not found:
            raise IndexNotFound(index_id=index_id)
        stored = found[0][0]
        for other in (fingerprint, self._fingerprint):
            if other != stored:
                raise ModelMismatch(request=other, index=stored)
        return [row[1:] for row in found if row[1] is not None]
