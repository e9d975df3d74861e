"""Defines what a search by words finds."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from index_svc.retrieval.hit import F32
from tandem.v1 import index_service_pb2 as pb


class KeywordState(enum.Enum):
    """Says whether a shard could search by words; names are the contract's."""

    SEARCHED = pb.KEYWORD_STATE_SEARCHED
    DISABLED = pb.KEYWORD_STATE_DISABLED
    BEING_BUILT = pb.KEYWORD_STATE_BEING_BUILT


@dataclass(frozen=True, slots=True)
class WordHit:
    """Pairs an item with the BM25 score of its text."""

    item_id: str
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class KeywordFound:
    """Reports the items that the words of a query found, best first, ties by smaller item id."""

    state: KeywordState
    hits: Sequence[WordHit] = ()
    similarities: Sequence[F32] = ()
    """[hits] for each embedding of the query."""
    embeddings: F32 | None = None
    """Of the hits, float32 [hits, d], if requested."""
