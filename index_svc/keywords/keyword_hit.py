"""Defines what a search by words finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from index_svc.retrieval.hit import F32
from tandem.contract.search_path import KeywordState as KeywordState


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
