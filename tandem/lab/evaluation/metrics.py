"""Computes retrieval metrics of ranks, with intervals and a paired test."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

RECALL_AT = (1, 5, 10)
NDCG_AT = 10

QueryRanks = Sequence[int | None]
"""The rank of each of a query's answers, from 1; None for one beyond the searched depth."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Holds the share of queries whose answer is among the first k, in percent."""

    k: int
    hit_count: int
    query_count: int
    effective_count: float | None = None
    """From effective_query_count; None if no two queries share a picture."""

    @property
    def percent(self) -> float:
        return 100.0 * self.hit_count / self.query_count

    @property
    def interval_percent(self) -> tuple[float, float]:
        """The 95 % Wilson score interval of R@k, which stays within 0 to 100.

        Queries of one picture count as the effective number of them (Dean and Pagano, 2015).

        >>> low, high = Recall(1, 50, 100).interval_percent
        >>> round(low, 1), round(high, 1)
        (40.4, 59.6)
        """
        z = 1.959964
        p = self.hit_count / self.query_count
        n = self.query_count if self.effective_count is None else self.effective_count
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        low, high = 100.0 * (centre - half), 100.0 * (centre + half)
        # With no hits or only hits, rounding may put an end of the interval slightly off.
        return max(0.0, min(low, self.percent)), min(100.0, max(high, self.percent))


def recall_at(ranks: Sequence[int | None], k: int, pictures: Sequence[int] = ()) -> Recall:
    """Returns R@k of queries with these ranks of their first right answer, from 1 or None.

    `pictures` numbers each query's picture, if some share one. Raises ValueError without queries.

    >>> recall_at([1, 3, None, 2], k=2).percent
    50.0
    """
    if not ranks:
        raise ValueError("no queries were ranked, so there is no recall")
    hits = [rank is not None and rank <= k for rank in ranks]
    effective_count = effective_query_count(hits, pictures) if pictures else None
    return Recall(k, sum(hits), len(hits), effective_count)


def effective_query_count(hits: Sequence[bool], pictures: Sequence[int]) -> float:
    """Returns the number of independent queries that would give a recall of the same variance.

    Outcomes of a picture's captions are correlated. The effective number is between the number of
    pictures (all captions of a picture agree) and the number of queries (no correlation). It is
    p (1 - p) over the variance of the recall p between pictures; for a recall of 0 or 100 percent,
    which does not show the correlation, it is the number of pictures.

    >>> effective_query_count([True, True, False, False], [1, 1, 2, 2])
    2.0
    >>> effective_query_count([True, False, True, False], [1, 1, 2, 2])
    4.0
    """
    picture_hits: Counter[int] = Counter()
    for hit, picture in zip(hits, pictures, strict=True):
        picture_hits[picture] += hit
    sizes = Counter(pictures)
    count, recall = len(hits), sum(hits) / len(hits)
    if recall in (0.0, 1.0):
        return float(len(sizes))
    squares = sum((picture_hits[each] - recall * size) ** 2 for each, size in sizes.items())
    alike = squares / (recall * (1 - recall))  # `count` where each is of its own picture
    return float(count * count / max(alike, count))


def mean_recall(recalls: Sequence[Recall]) -> float:
    """Returns the papers' mR: the mean of R@1, R@5 and R@10 over both directions, in percent."""
    return recall_sum(recalls) / len(recalls)


def recall_sum(recalls: Sequence[Recall]) -> float:
    """Returns rSum, the sum of R@1, R@5 and R@10 over both directions, at most 600.

    Raises ValueError unless these three are given for both directions.
    """
    if sorted(recall.k for recall in recalls) != [1, 1, 5, 5, 10, 10]:
        raise ValueError(f"R@1, 5 and 10 of both directions are needed, not {len(recalls)} others")
    return sum(recall.percent for recall in recalls)


def mean_reciprocal_rank(ranks: Sequence[int | None]) -> float:
    """Returns MRR, 0 to 1, of these ranks from 1; None counts as 0.

    >>> mean_reciprocal_rank([1, 2, 4, None])
    0.4375
    """
    return sum(1 / rank for rank in ranks if rank is not None) / len(ranks)


def median_rank(ranks: Sequence[int | None]) -> float:
    """Returns the median of `ranks`, from 1; the mean of the middle two for an even number.

    The papers' code truncates it: where ours is 1.5, theirs is 1. A missing answer, None, counts as
    infinity.

    >>> median_rank([1, 9, 2, None])
    5.5
    """
    return statistics.median(math.inf if rank is None else rank for rank in ranks)


def ndcg(queries: Sequence[QueryRanks], k: int = NDCG_AT) -> float:
    """Returns the mean NDCG@k of queries, 0 to 1, where each answer is equally relevant.

    An answer at rank r up to k gains 1 / log2(r + 1), and the sum is divided by what the first
    min(k, number of answers) ranks would gain (Järvelin and Kekäläinen 2002).

    >>> ndcg([(1, 3)], k=10) == (1 + 1 / 2) / (1 + 1 / math.log2(3))
    True
    """
    return statistics.fmean(_ndcg(each, k) for each in queries)


def graded_ndcg(found: Sequence[int], grades: Iterable[int], k: int = NDCG_AT) -> float:
    """Returns NDCG@k of one query, 0 to 1: the grades found, best rank first, against all grades.

    A grade gains itself, as in trec_eval, and one below 0 nothing; without a gain NDCG is 0.

    >>> graded_ndcg([1, 3], [3, 1, 0]) == (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    True
    """
    best = _gain(sorted(grades, reverse=True)[:k])
    return _gain(found[:k]) / best if best else 0.0


def mean_average_precision(queries: Sequence[QueryRanks]) -> float:
    """Returns MAP, 0 to 1: the mean over the queries of the mean precision at their answers.

    With its answers at the ascending ranks r1, r2 …, a query's average precision is the mean of
    1 / r1, 2 / r2 …; None counts as 0. With one answer each, MAP is MRR.

    >>> mean_average_precision([(1, 4), (2, None)])
    0.5
    """
    return statistics.fmean(_average_precision(each) for each in queries)


def paired_p_value(hits_a: Sequence[int], hits_b: Sequence[int]) -> float:
    """Returns the two-sided p-value of the difference of two systems: McNemar's test, exact.

    The hits are per query, or per group of dependent outcomes (seeds of one system, captions of one
    picture) as the number of hits. Under the null hypothesis only the sign of a group's difference
    is random, so two seeds that agree are no more evidence than one.

    >>> paired_p_value([True] * 6, [False] * 6)
    0.03125
    >>> paired_p_value([3] * 6, [0] * 6)
    0.03125
    """
    differences = [a - b for a, b in zip(hits_a, hits_b, strict=True)]
    # Entry i is the probability that the randomly signed differences sum to 2 i - their total.
    probabilities = np.ones(1)
    for size, count in Counter(map(abs, differences)).items():
        if size:
            of_size = np.zeros(size * count + 1)
            # In integers, as 2**count overflows a float.
            of_size[::size] = [math.comb(count, heads) / 2**count for heads in range(count + 1)]
            probabilities = np.convolve(probabilities, of_size)
    sums = 2 * np.arange(len(probabilities)) - (len(probabilities) - 1)
    return min(1.0, float(probabilities[np.abs(sums) >= abs(sum(differences))].sum()))


def _ndcg(ranks: QueryRanks, k: int) -> float:
    gain = sum(1 / math.log2(rank + 1) for rank in ranks if rank is not None and rank <= k)
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(ranks)) + 1))


def _average_precision(ranks: QueryRanks) -> float:
    found = sorted(rank for rank in ranks if rank is not None)
    return sum(number / rank for number, rank in enumerate(found, start=1)) / len(ranks)


def _gain(grades: Sequence[int]) -> float:
    return sum(max(0, each) / math.log2(rank + 1) for rank, each in enumerate(grades, start=1))
