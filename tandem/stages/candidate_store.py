"""Defines where a rerank reads its candidates: from a store here, or from an outside engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tandem.contract.content import Content, Tokens
from tandem.stages.reranking import ScoreQuery


@dataclass(frozen=True, slots=True, eq=False)
class StoredTokens:
    """Holds what a rerank needs of one item, and the version that identifies its write."""

    tokens: Tokens
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredContent:
    """Holds one item's content, and the version that identifies its write."""

    content: Content
    version: int


class CandidateStore(Protocol):
    """Reads stored items of one model.

    All reads raise IndexNotFound, ItemCorrupt, ServiceUnavailable, and ModelMismatch if the
    caller's or the served model is not the index's.
    """

    async def open(self) -> None:
        """Opens the store if it is not open; raises ServiceUnavailable until it can be read."""

    async def close(self) -> None:
        """Closes the store; no call may be in flight."""

    async def versions(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, int]:
        """Returns the versions of the items that exist."""

    async def tokens(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, StoredTokens]:
        """Returns tokens and versions of the items that exist, of one state of the store."""

    async def contents(
        self, asked: ScoreQuery, item_ids: Sequence[str]
    ) -> dict[str, StoredContent]:
        """Returns contents and versions of the items that exist, of one state of the store."""
