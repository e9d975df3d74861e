"""Bi-encoder and cross-encoder as one score (Geigle et al. 2022, section 6, equation 3).

Both take the similarities and match probabilities of each query's pool and a weight, the papers'
lambda: 1 leaves the similarity alone, 0 the probability. Shapes: Q queries, K pool.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating[Any]]


def add(similarity_QK: Scores, probability_QK: Scores, weight: float) -> Scores:
    """Returns the weighted sum of both as they are."""
    _check(similarity_QK, probability_QK, weight)
    return weight * similarity_QK + (1 - weight) * probability_QK


def norm_add(similarity_QK: Scores, probability_QK: Scores, weight: float) -> Scores:
    """Returns the weighted sum of both, each spread over 0 to 1 within its pool.

    The first version of the paper subtracts the magnitude of the minimum instead, which differs
    where a similarity is negative, and its code normalises only a fifth of the text queries
    (methods 5.1, 5.2).
    """
    _check(similarity_QK, probability_QK, weight)
    return weight * _spread(similarity_QK) + (1 - weight) * _spread(probability_QK)


def _spread(scores_QK: Scores) -> Scores:
    low = scores_QK.min(axis=1, keepdims=True)
    width = scores_QK.max(axis=1, keepdims=True) - low
    # A pool of equals tells nothing: all get the middle.
    return np.where(width > 0, (scores_QK - low) / np.where(width > 0, width, 1), 0.5)


def _check(similarity_QK: Scores, probability_QK: Scores, weight: float) -> None:
    if similarity_QK.shape != probability_QK.shape:
        raise ValueError(f"pools of {similarity_QK.shape} and {probability_QK.shape} cannot be one")
    if not 0 <= weight <= 1:
        raise ValueError(f"the weight is {weight}; it lies between 0 and 1")
