"""Defines what a shard finds, and merges lists of hits."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.fusion import HybridRank


@dataclass(frozen=True, slots=True)
class Hit:
    """Pairs a retrieved item with its cosine similarity to the query."""

    item_id: str
    similarity: float
    modality: Modality | None = None
    """The modality that was searched for; None if it does not matter."""
    embedding: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """float32 [d] of unit length; None unless the search compares its hits with each other."""
    window_number: int = 0
    """The number of the query embedding that it is nearest to, from 0."""
    hybrid: HybridRank | None = None
    """Its places in both lists of a hybrid search; None in any other."""

    @property
    def retrieval_score(self) -> float:
        """What it was ordered by before the rerank."""
        return self.similarity if self.hybrid is None else self.hybrid.fused_score


@dataclass(frozen=True, slots=True)
class KeywordHit:
    """Pairs a hit that words found with its BM25 score."""

    hit: Hit
    score: float


def merge_hits(shards: Iterable[Sequence[Hit]], count: int) -> list[Hit]:
    """Merges lists that are each best first into the `count` best; ties go by smaller item id."""
    merged = heapq.merge(*shards, key=lambda hit: (-hit.similarity, hit.item_id))
    return list(islice(merged, count))


def merge_keyword_hits(shards: Iterable[Sequence[KeywordHit]], count: int) -> list[KeywordHit]:
    """Merges lists by BM25 score into the `count` best; ties go by smaller item id.

    Each shard scores by its own word statistics, which are alike where items are spread by hash.
    """
    found = (each for hits in shards for each in hits)
    return sorted(found, key=lambda each: (-each.score, each.hit.item_id))[:count]


def merge_windows(windows: Sequence[Sequence[Hit]], count: int) -> Sequence[Hit]:
    """Merges one shard's hits for several embeddings of one query into the `count` best.

    An item that several embeddings found counts once, with its highest similarity.
    """
    if len(windows) == 1:
        return windows[0]
    numbered = (
        [Hit(hit.item_id, hit.similarity, hit.modality, hit.embedding, number) for hit in window]
        for number, window in enumerate(windows)
    )
    nearest: dict[str, Hit] = {}
    for hit in heapq.merge(*numbered, key=lambda hit: (-hit.similarity, hit.item_id)):
        nearest.setdefault(hit.item_id, hit)
    return list(islice(nearest.values(), count))
