"""Reads what a rerank needs of candidates: rows from Milvus, records from the object store."""

from collections.abc import Sequence

from tandem.contract.deadline import Deadline
from tandem.local.item_store.item_record import RecordView
from tandem.remote.index_engine import EngineSettings
from tandem.remote.milvus.collections import IndexCollection
from tandem.remote.milvus.engine_url import collections_of
from tandem.stages.candidate_store import CandidateStore, StoredContent, StoredTokens
from tandem.stages.reranking import ScoreQuery

# Of one read; the rerank's own deadline is shorter, and cancels it.
_READ_SECONDS = 10.0


class MilvusCandidates(CandidateStore):
    """Reads candidates of indexes of one model."""

    def __init__(self, settings: EngineSettings, fingerprint: str) -> None:
        """Raises SettingsError for a URL that cannot be."""
        self._collections, _ = collections_of(settings)
        self._fingerprint = fingerprint

    async def open(self) -> None:
        """Raises ServiceUnavailable while Milvus does not answer."""
        await self._collections.connection.check()

    async def close(self) -> None:
        """Closes the connection."""
        await self._collections.connection.close()

    async def versions(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, int]:
        """Returns the versions of the items that exist."""
        deadline = Deadline.after(_READ_SECONDS)
        collection = await self._collection(asked, deadline)
        return await collection.versions(item_ids, deadline)

    async def tokens(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, StoredTokens]:
        """Returns tokens and versions of the items that exist."""
        records = await self._records(asked, item_ids)
        return {each.item_id: StoredTokens(each.tokens(), each.version) for each in records}

    async def contents(
        self, asked: ScoreQuery, item_ids: Sequence[str]
    ) -> dict[str, StoredContent]:
        """Returns contents and versions of the items that exist."""
        records = await self._records(asked, item_ids)
        return {each.item_id: StoredContent(each.content(), each.version) for each in records}

    async def _records(self, asked: ScoreQuery, item_ids: Sequence[str]) -> Sequence[RecordView]:
        deadline = Deadline.after(_READ_SECONDS)
        collection = await self._collection(asked, deadline)
        versions = await collection.versions(item_ids, deadline)
        return await collection.records(versions, deadline)

    async def _collection(self, asked: ScoreQuery, deadline: Deadline) -> IndexCollection:
        collection = await self._collections.get(asked.index_id, deadline)
        for each in (asked.fingerprint, self._fingerprint):
            collection.check(each, ())
        return collection
