"""Orders of items: merging shards' hits, and putting the cross-encoder's order before the rest."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved item and its cosine similarity to the query."""

    item_id: str
    similarity: float


@dataclass(frozen=True, slots=True)
class MatchScore:
    """What the cross-encoder makes of one candidate."""

    logit: float
    probability: float


@dataclass(frozen=True, slots=True)
class RankedHit:
    """A hit with its place in both orders, from 1; `match` is None where the CE did not score."""

    hit: Hit
    match: MatchScore | None
    retrieve_rank: int
    final_rank: int


def merge_hits(shards: Iterable[Sequence[Hit]], count: int) -> list[Hit]:
    """Returns the `count` best of lists that are each best first; ties by smaller item id."""
    merged = heapq.merge(*shards, key=lambda hit: (-hit.similarity, hit.item_id))
    return list(islice(merged, count))


def rank_hits(hits: Sequence[Hit], matches: Mapping[str, MatchScore]) -> list[RankedHit]:
    """Returns the final order of hits that come in retrieval order.

    Scored hits stand first, by logit, ties in retrieval order; then the others, in retrieval order:
    a cross-encoder's score and a bi-encoder's are not comparable.
    """

    def place(ranked: tuple[int, Hit]) -> tuple[bool, float, int]:
        match = matches.get(ranked[1].item_id)
        return (match is None, -match.logit if match else 0.0, ranked[0])

    order = sorted(enumerate(hits, start=1), key=place)
    return [
        RankedHit(hit, matches.get(hit.item_id), retrieve_rank, final_rank)
        for final_rank, (retrieve_rank, hit) in enumerate(order, start=1)
    ]
