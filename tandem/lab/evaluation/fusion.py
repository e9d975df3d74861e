"""Fuses similarity and match probability (Geigle et al. 2022, section 6, equation 3).

Both functions take the scores of each query's pool and a weight, the paper's lambda: 1 uses only
the similarity, 0 only the probability. Shapes: Q queries, K pool.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating[Any]]


def add(similarity_QK: Scores, probability_QK: Scores, weight: float) -> Scores:
    """Returns the weighted sum of both scores (ADD)."""
    return weight * similarity_QK + (1 - weight) * probability_QK


def norm_add(similarity_QK: Scores, probability_QK: Scores, weight: float) -> Scores:
    """Returns the weighted sum of both, each scaled to 0 to 1 within its pool (NORM_ADD).

    The paper's first arXiv version (equations 4 to 6) subtracts the magnitude of the minimum, which
    differs if a similarity is negative. Its code fuses only the first fifth of the text queries, so
    the NORM_ADD figures of Table 9 for image retrieval are not those of this method.
    """
    return weight * _spread(similarity_QK) + (1 - weight) * _spread(probability_QK)


def _spread(scores_QK: Scores) -> Scores:
    low = scores_QK.min(axis=1, keepdims=True)
    width = scores_QK.max(axis=1, keepdims=True) - low
    # A pool of equal scores has no spread; all get the middle.
    return np.where(width > 0, (scores_QK - low) / np.where(width > 0, width, 1), 0.5)
