"""Reads candidates from one shard's item store, in threads."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.errors import ServiceUnavailable
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.candidate_store import CandidateStore, StoredContent, StoredTokens
from tandem.stages.reranking import ScoreQuery

T = TypeVar("T")


class CandidateReader(CandidateStore):
    """Reads items of indexes of one model."""

    def __init__(
        self, open_store: Callable[[], ItemStore], turns: CallerTurns, fingerprint: str
    ) -> None:
        """Retries `open_store` until it succeeds, because index_svc may create the store later."""
        self._open_store = open_store
        self._turns = turns
        self._fingerprint = fingerprint
        self._store: ItemStore | None = None

    async def open(self) -> None:
        """Opens the store if it is not open; raises what `open_store` raises."""
        if self._store is None:
            self._store = await self._turns.run(self._open_store)

    async def close(self) -> None:
        """Closes the store; no call may be in flight."""
        if self._store is not None:
            self._store.close()

    async def versions(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, int]:
        """Returns the versions of the items that exist."""
        return await self._read(ItemStore.read_versions, asked, item_ids)

    async def tokens(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, StoredTokens]:
        """Returns tokens and versions of the items that exist, from one transaction."""
        return await self._read(ItemStore.read_stored_tokens, asked, item_ids)

    async def contents(
        self, asked: ScoreQuery, item_ids: Sequence[str]
    ) -> dict[str, StoredContent]:
        """Returns contents and versions of the items that exist, from one transaction."""
        return await self._read(ItemStore.read_stored_contents, asked, item_ids)

    async def _read(
        self,
        read: Callable[[ItemStore, str, Sequence[str]], Sequence[T | None]],
        asked: ScoreQuery,
        item_ids: Sequence[str],
    ) -> dict[str, T]:
        def read_checked() -> dict[str, T]:
            found = read(self._checked(asked), asked.index_id, item_ids)
            return {
                item_id: each
                for item_id, each in zip(item_ids, found, strict=True)
                if each is not None
            }

        return await self._turns.run(read_checked)

    def _checked(self, asked: ScoreQuery) -> ItemStore:
        if self._store is None:
            raise ServiceUnavailable(service="rerank", why="its item store is not open yet")
        info = self._store.index_info(asked.index_id)
        for each in (asked.fingerprint, self._fingerprint):
            info.check(each, ())
        return self._store
