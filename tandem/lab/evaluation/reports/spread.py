"""Gives the mean of several seeds, with its interval by Student's t."""

import math
import statistics
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Spread:
    """Holds one figure for several seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation; None for a single value, as the interval."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, of other seeds of the same training.

        It needs at least three to say much: for two it is 13 times as wide as the values are apart.
        """
        if self.deviation is None:
            return None
        count = len(self.values)
        half = t_quantile(count - 1) * self.deviation / math.sqrt(count)
        return self.mean - half, self.mean + half

    @property
    def interval_text(self) -> str:
        return "" if self.interval is None else "{:.1f} to {:.1f}".format(*self.interval)

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.1f}"
        return f"{self.mean:.1f}{spread}"


@lru_cache
def t_quantile(freedom: int) -> float:
    """Returns the t for which 95 % of the distribution lie between -t and t.

    `freedom` is the number of values less one. The distribution function is the finite sum of
    Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.

    >>> round(t_quantile(2), 3), round(t_quantile(9), 3)
    (4.303, 2.262)
    """
    low, high = 0.0, 1e6
    while high - low > 1e-9 * max(1.0, low):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < 0.95 else (low, middle)
    return high


def _share_within(t: float, freedom: int) -> float:
    """Returns the probability of a value between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    term, total = (cosine, 0.0) if freedom % 2 else (1.0, 0.0)
    # Odd: cos + 2/3 cos³ + 2·4/(3·5) cos⁵ …; even: 1 + 1/2 cos² + 1·3/(2·4) cos⁴ …
    for power in range(freedom % 2, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    whole = math.sin(angle) * total
    return 2 / math.pi * (angle + whole) if freedom % 2 else whole
