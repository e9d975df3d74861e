"""Gives Student's t, for intervals of a few seeds' mean."""

import math
from functools import lru_cache


@lru_cache
def t_quantile(freedom: int, share: float = 0.95) -> float:
    """Returns the t for which a share of the distribution lies between -t and t.

    `freedom` is the number of values less one. The distribution function is the finite sum of
    Abramowitz and Stegun 1964, 26.7.3 and 26.7.4. Raises ValueError for no degrees of freedom.

    >>> round(t_quantile(2), 3), round(t_quantile(9), 3)
    (4.303, 2.262)
    """
    if freedom < 1:
        raise ValueError("an interval needs at least two values")
    low, high = 0.0, 1e6
    while high - low > 1e-9 * max(1.0, low):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < share else (low, middle)
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
