"""Recall at k, with the interval that says how much of it is luck."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of queries whose answer is among the first k, in percent."""

    k: int
    hit_count: int
    query_count: int

    @property
    def percent(self) -> float:
        """R@k."""
        return 100.0 * self.hit_count / self.query_count

    @property
    def interval_percent(self) -> tuple[float, float]:
        """The 95 % Wilson score interval of R@k, which stays within 0 to 100.

        >>> low, high = Recall(1, 50, 100).interval_percent
        >>> round(low, 1), round(high, 1)
        (40.4, 59.6)
        """
        z = 1.959964
        n, p = self.query_count, self.hit_count / self.query_count
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        # Rounding leaves the ends of no hits and of nothing but hits a hair outside.
        return max(0.0, 100.0 * (centre - half)), min(100.0, 100.0 * (centre + half))


def recall_at(ranks: Sequence[int | None], k: int) -> Recall:
    """Returns R@k of queries whose first right answer stands at `ranks`, from 1; None is absent.

    Raises ValueError without queries.

    >>> recall_at([1, 3, None, 2], k=2).percent
    50.0
    """
    if not ranks:
        raise ValueError("no queries were ranked, so there is no recall")
    return Recall(k, sum(rank is not None and rank <= k for rank in ranks), len(ranks))
