"""What shards answer with: hits, scores of candidates, and lists of hits made one."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved item and its cosine similarity to the query."""

    item_id: str
    similarity: float
    modality: Modality | None = None
    """What was looked for when it was found; None where nobody asks."""
    embedding: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """float32 [d] of unit length; None unless the search compares its hits with each other."""
    window_number: int = 0
    """Which of the query's embeddings it is nearest to, from 0."""


@dataclass(frozen=True, slots=True)
class Match:
    """What the cross-encoder makes of one candidate."""

    logit: float
    probability: float


def merge_hits(shards: Iterable[Sequence[Hit]], count: int) -> list[Hit]:
    """Returns the `count` best of lists that are each best first; ties by smaller item id."""
    merged = heapq.merge(*shards, key=lambda hit: (-hit.similarity, hit.item_id))
    return list(islice(merged, count))


def merge_windows(windows: Sequence[Sequence[Hit]], count: int) -> Sequence[Hit]:
    """Returns the `count` best hits of one shard for several embeddings of one query.

    An item that several found counts once, as near as it is to the nearest of them.
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
