"""Reads a rerank's candidates from Postgres."""

from collections.abc import Sequence
from functools import partial

from tandem.contract.deadline import Deadline
from tandem.errors import ModelMismatch
from tandem.local.item_store.item_record import item_version
from tandem.remote.index_engine import EngineSettings
from tandem.remote.pgvector.connections import Row, Servers
from tandem.remote.pgvector.tables import check, item_rows, record_of
from tandem.stages.candidate_store import CandidateStore, StoredContent, StoredTokens
from tandem.stages.reranking import ScoreQuery

# The stage that asks has a deadline of its own; this one frees a connection that hangs.
_READ_SECONDS = 30.0
# A version is in the first bytes of a head.
_VERSION_PARTS = "substring(items.head FOR 64)"


class PgvectorCandidates(CandidateStore):
    """Reads candidates of indexes of one model."""

    def __init__(self, settings: EngineSettings, fingerprint: str) -> None:
        """Refuses indexes of other models than the one of the fingerprint."""
        self._fingerprint = fingerprint
        self._servers = Servers(settings)

    async def open(self) -> None:
        """Connects; raises ServiceUnavailable, also before index_svc has made the tables."""
        await self._servers.check(check)

    async def close(self) -> None:
        """Closes the connections; no call may be in flight."""
        await self._servers.close()

    async def versions(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, int]:
        """Returns the versions of the items that exist."""
        rows = await self._read(_VERSION_PARTS, asked, item_ids)
        return {each: item_version(each, head) for each, head in rows}

    async def tokens(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, StoredTokens]:
        """Returns tokens and versions of the items that exist, of one state of the store."""
        rows = await self._read("items.head", asked, item_ids)
        records = (record_of(asked.index_id, *row) for row in rows)
        return {each.item_id: StoredTokens(each.tokens(), each.version) for each in records}

    async def contents(
        self, asked: ScoreQuery, item_ids: Sequence[str]
    ) -> dict[str, StoredContent]:
        """Returns contents and versions of the items that exist, of one state of the store."""
        rows = await self._read("items.head, items.content", asked, item_ids)
        records = ((record_of(asked.index_id, each, head), content) for each, head, content in rows)
        return {
            each.item_id: StoredContent(each.content(content), each.version)
            for each, content in records
        }

    async def _read(self, parts: str, asked: ScoreQuery, item_ids: Sequence[str]) -> Sequence[Row]:
        work = partial(item_rows, asked.index_id, item_ids, parts)
        deadline = Deadline.after(_READ_SECONDS)
        stored, rows = await self._servers.read(work, deadline, "candidates")
        for other in (asked.fingerprint, self._fingerprint):
            if other != stored:
                raise ModelMismatch(request=other, index=stored)
        return rows
