"""Reads what a rerank needs of candidates: rows from Milvus, records from the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tandem.contract.deadline import Deadline
from tandem.local.item_store.item_record import RecordView
from tandem.remote.milvus.collections import Collections, IndexCollection
from tandem.remote.milvus.connection import MilvusConnection
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.remote.milvus.rows import Rows, StoredRow
from tandem.stages.candidate_store import CandidateStore, StoredContent, StoredTokens

# Of one read; the rerank's own deadline is shorter, and cancels it.
_READ_SECONDS = 10.0


class MilvusCandidates(CandidateStore):
    """Reads candidates of indexes of one model."""

    def __init__(
        self,
        connection: MilvusConnection,
        collections: Collections,
        objects: ItemObjects,
        fingerprint: str,
    ) -> None:
        self._connection = connection
        self._collections = collections
        self._rows = Rows(connection, objects)
        self._fingerprint = fingerprint

    async def open(self) -> None:
        """Raises ServiceUnavailable while Milvus does not answer."""
        await self._connection.check()

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    async def versions(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> dict[str, int]:
        """Returns the versions of the items that exist."""
        deadline = Deadline.after(_READ_SECONDS)
        _, rows = await self._read(index_id, fingerprint, item_ids, deadline)
        return {item_id: row.version for item_id, row in rows.items()}

    async def tokens(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> dict[str, StoredTokens]:
        """Returns tokens and versions of the items that exist."""
        records = await self._records(index_id, fingerprint, item_ids)
        return {
            item_id: StoredTokens(record.tokens(), row.version)
            for item_id, (row, record) in records.items()
        }

    async def contents(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> dict[str, StoredContent]:
        """Returns contents and versions of the items that exist."""
        records = await self._records(index_id, fingerprint, item_ids)
        return {
            item_id: StoredContent(record.content(), row.version)
            for item_id, (row, record) in records.items()
        }

    async def _records(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> Mapping[str, tuple[StoredRow, RecordView]]:
        deadline = Deadline.after(_READ_SECONDS)
        collection, rows = await self._read(index_id, fingerprint, item_ids, deadline)
        return await self._rows.records(collection, rows, deadline)

    async def _read(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str], deadline: Deadline
    ) -> tuple[IndexCollection, Mapping[str, StoredRow]]:
        collection = await self._collections.get(index_id, deadline)
        for each in (fingerprint, self._fingerprint):
            collection.check(each, ())
        return collection, await self._rows.read(collection, item_ids, deadline)
