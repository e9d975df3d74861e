"""Defines what one shard answers to a query, and makes hits of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tandem.contract.search_path import KeywordState, SearchPath
from tandem.errors import SequenceNotReached
from tandem.stages.hit import Hit, KeywordHit, merge_windows
from tandem.stages.retrieval import ShardHits, ShardQuery

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RowHit:
    """Describes one found item."""

    item_id: str
    similarity: float
    row: int = field(default=-1, compare=False)
    """The row of its embedding, valid while the search holds off changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Reports an embedding's nearest items, best first, ties by smaller item id."""

    hits: Sequence[RowHit]
    path: SearchPath
    embeddings: F32 | None = None
    """Of the hits, float32 [hits, d], if requested."""


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


@dataclass(frozen=True, slots=True, eq=False)
class ShardAnswer:
    """Reports what a shard found."""

    found: Sequence[Found]
    """One for each embedding of the query."""
    applied_sequence: int
    item_count: int
    """Of the index and modality, whether or not the filter matches."""
    keyword_found: KeywordFound | None = None
    """What the query's words found; None if it has none."""
    search_seconds: float = 0.0

    def part(self, start: int, stop: int) -> "ShardAnswer":
        """Returns the answer to some of the query's embeddings."""
        words = self.keyword_found
        return replace(
            self,
            found=self.found[start:stop],
            keyword_found=words and replace(words, similarities=words.similarities[start:stop]),
        )


def hits_of(answer: ShardAnswer, query: ShardQuery) -> ShardHits:
    """Returns the hits of a query.

    Raises SequenceNotReached for a shard of an earlier version, which ignores the minimum.
    """
    if answer.applied_sequence < query.minimum_sequence:
        raise SequenceNotReached(minimum=query.minimum_sequence, applied=answer.applied_sequence)
    return ShardHits(
        merge_windows([_hits(found, query) for found in answer.found], query.retrieve_k),
        answer.item_count,
        answer.found[-1].path,
        _keyword_hits(answer.keyword_found, query),
        None if answer.keyword_found is None else answer.keyword_found.state,
    )


def _hits(found: Found, query: ShardQuery) -> list[Hit]:
    return [
        Hit(
            hit.item_id,
            _cosine(hit.similarity),
            query.modality,
            None if found.embeddings is None else found.embeddings[place],
        )
        for place, hit in enumerate(found.hits)
    ]


def _keyword_hits(found: KeywordFound | None, query: ShardQuery) -> Sequence[KeywordHit]:
    """Returns what the words found, with the similarity to the nearest of the embeddings."""
    if found is None or not found.hits:
        return ()
    similarities = np.stack(found.similarities)
    nearest = similarities.argmax(axis=0).tolist()
    return [
        KeywordHit(
            Hit(
                hit.item_id,
                _cosine(float(similarities[nearest[place], place])),
                query.modality,
                None if found.embeddings is None else found.embeddings[place],
                nearest[place],
            ),
            hit.score,
        )
        for place, hit in enumerate(found.hits)
    ]


def _cosine(similarity: float) -> float:
    # Embeddings are unit vectors within a tolerance, so a product may slightly exceed 1.
    return min(1.0, max(-1.0, similarity))
