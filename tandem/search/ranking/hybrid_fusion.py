"""Fuses the nearest items with those that words found into one list."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tandem.contract.fusion import HybridFusion, HybridRank
from tandem.contract.search.query import HybridRule
from tandem.stages.hit import Hit, KeywordHit

RANK_CONSTANT = 60
"""The k of Cormack et al. 2009, who found that its value matters little."""


def fused_hits(
    nearest: Sequence[Hit], keyword_hits: Sequence[KeywordHit], rule: HybridRule, count: int
) -> list[Hit]:
    """Returns the `count` best of both lists, each best first; ties go by smaller item id.

    The score of an item is the weighted sum of what `rule.fusion` makes of its scores in each
    list. A list that lacks an item adds what the method says of missing items.
    """
    values, missing = _METHODS[rule.fusion]
    near = values([hit.similarity for hit in nearest])
    worded = values([each.score for each in keyword_hits])
    near_of = dict(zip((hit.item_id for hit in nearest), near, strict=True))
    worded_of = dict(zip((each.hit.item_id for each in keyword_hits), worded, strict=True))
    places = _places(nearest, keyword_hits)
    hits = {each.hit.item_id: each.hit for each in keyword_hits}
    hits |= {hit.item_id: hit for hit in nearest}
    weight = rule.keyword_weight
    fused = [
        replace(
            hit,
            hybrid=replace(
                places[item_id],
                fused_score=(1 - weight) * near_of.get(item_id, missing(near))
                + weight * worded_of.get(item_id, missing(worded)),
            ),
        )
        for item_id, hit in hits.items()
    ]
    return sorted(fused, key=lambda hit: (-hit.retrieval_score, hit.item_id))[:count]


def reciprocal_ranks(scores: Sequence[float]) -> list[float]:
    """Returns 1 / (60 + rank) for each place, from rank 1.

    Reciprocal rank fusion: Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms
    Condorcet and individual Rank Learning Methods", SIGIR 2009. A missing item adds 0.
    """
    return [1 / (RANK_CONSTANT + rank) for rank in range(1, len(scores) + 1)]


def z_scores(scores: Sequence[float]) -> list[float]:
    """Returns (score - mean) / standard deviation, of the whole list; 0 where all are equal.

    Renda and Straccia, "Web Metasearch: Rank vs. Score Based Rank Aggregation Methods", SAC 2003.
    A missing item adds the lowest of the list: 0 would be as good as the mean of what was found.
    """
    if len(set(scores)) < 2:
        return [0.0] * len(scores)
    mean, deviation = statistics.fmean(scores), statistics.pstdev(scores)
    return [(score - mean) / deviation for score in scores] if deviation else [0.0] * len(scores)


def distribution_scores(scores: Sequence[float]) -> list[float]:
    """Returns scores scaled so that three deviations below the mean are 0, three above it 1.

    Distribution-based score fusion (Mazzeschi 2023), as Qdrant computes it: with the sample's
    standard deviation, and 0.5 where all are equal. A missing item adds 0.
    """
    if len(set(scores)) < 2:
        return [0.5] * len(scores)
    mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
    if not deviation:
        return [0.5] * len(scores)
    return [(score - mean + 3 * deviation) / (6 * deviation) for score in scores]


def _nothing(_: Sequence[float]) -> float:
    return 0.0


def _lowest(values: Sequence[float]) -> float:
    return min(values, default=0.0)


_METHODS: Mapping[
    HybridFusion,
    tuple[Callable[[Sequence[float]], list[float]], Callable[[Sequence[float]], float]],
] = {
    HybridFusion.RECIPROCAL_RANK: (reciprocal_ranks, _nothing),
    HybridFusion.Z_SCORE: (z_scores, _lowest),
    HybridFusion.DISTRIBUTION: (distribution_scores, _nothing),
}
"""What each makes of the scores of a list, best first, and of an item that is not in it."""


def _places(nearest: Sequence[Hit], keyword_hits: Sequence[KeywordHit]) -> dict[str, HybridRank]:
    places = {
        hit.item_id: HybridRank(rank, None, None, 0.0) for rank, hit in enumerate(nearest, start=1)
    }
    unplaced = HybridRank(None, None, None, 0.0)
    for rank, each in enumerate(keyword_hits, start=1):
        place = places.get(each.hit.item_id, unplaced)
        places[each.hit.item_id] = replace(place, keyword_rank=rank, keyword_score=each.score)
    return places
