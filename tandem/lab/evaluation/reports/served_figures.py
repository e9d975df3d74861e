"""Holds what a server's answers say besides ranks: times, probabilities, and how the CE ordered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from math import ceil, fsum
from statistics import median
from typing import Final, Self

from tandem.client import SearchResult
from tandem.lab.evaluation.metrics import RECALL_AT

BIN_COUNT: Final = 15
_PART_COUNT: Final = 5
_MIN_TIMED_COUNT: Final = 20


@dataclass(frozen=True, slots=True)
class ServedFigures:
    """Holds figures of one order; the tuples have an entry for each query."""

    p95_seconds: float | None
    """The median of the 95th percentiles of five consecutive parts, which one stall cannot move, of
    searches whose pairs no cache answered; None if there are fewer than 20."""
    empty_count: int
    """Queries that were answered with no item."""
    shown_count: int
    """Probabilities among the first ten items of all answers; 0 without a calibration."""
    pool_aucs: tuple[float | None, ...]
    """How often the CE puts a relevant item before another one, of those that it scored; None
    without both."""
    gaps: tuple[tuple[float, ...], ...]
    """Sum of probability less relevance over the shown items, by bin of the probability."""

    @classmethod
    def of(
        cls,
        results: Sequence[SearchResult],
        grades: Sequence[Mapping[str, int]],
        seconds: Sequence[float],
    ) -> Self:
        """Returns the figures of answers, the grades of their queries and their times."""
        gaps, counts = zip(*map(_gaps, results, grades), strict=True)
        return cls(
            _p95(list(compress(seconds, map(_is_scored, results)))),
            sum(not each.items for each in results),
            sum(counts),
            tuple(map(_pool_auc, results, grades)),
            gaps,
        )

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error (Guo et al. 2017); None without probabilities."""
        if not self.shown_count:
            return None
        return fsum(map(abs, map(fsum, zip(*self.gaps, strict=True)))) / self.shown_count


def _is_scored(result: SearchResult) -> bool:
    return result.cost.pair_count >= result.rerank.reranked_depth - result.rerank.missing_count


def _p95(seconds: Sequence[float]) -> float | None:
    if len(seconds) < _MIN_TIMED_COUNT:
        return None
    bounds = [len(seconds) * number // _PART_COUNT for number in range(_PART_COUNT + 1)]
    parts = [sorted(seconds[start:end]) for start, end in pairwise(bounds)]
    return median(part[ceil(0.95 * len(part)) - 1] for part in parts)


def _pool_auc(result: SearchResult, grades: Mapping[str, int]) -> float | None:
    right: list[float] = []
    wrong: list[float] = []
    for item in result.items:
        if item.match_logit is not None:
            (right if grades.get(item.item_id, 0) > 0 else wrong).append(item.match_logit)
    if not right or not wrong:
        return None
    won = sum((a > b) + (a == b) / 2 for a in right for b in wrong)
    return won / (len(right) * len(wrong))


def _gaps(result: SearchResult, grades: Mapping[str, int]) -> tuple[tuple[float, ...], int]:
    """Returns the gap of each bin, and the number of probabilities.

    An unjudged item counts as not relevant, unless the query has items that were judged not to be:
    then its judge did not see this one, and it is left out.
    """
    gaps, count = [0.0] * BIN_COUNT, 0
    is_pooled = any(grade <= 0 for grade in grades.values())
    for item in result.items:
        probability = item.match_probability
        if probability is None or item.final_rank > RECALL_AT[-1]:
            continue
        if item.item_id in grades or not is_pooled:
            place = min(int(probability * BIN_COUNT), BIN_COUNT - 1)
            gaps[place] += probability - (grades.get(item.item_id, 0) > 0)
            count += 1
    return tuple(gaps), count
