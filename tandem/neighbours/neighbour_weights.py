"""Weighs neighbours in an expansion; an embedding's own weight is always 1.

Shapes: Q queries, K neighbours, the most similar first.
"""

from collections.abc import Callable

import numpy as np

from tandem.neighbours.neighbour_lists import Scores

WeightsOf = Callable[[Scores], Scores]
"""Gives the weights [Q, K] of neighbours with these similarities, the most similar first."""


def equal_weights(similarity_QK: Scores) -> Scores:
    """Returns 1 for each neighbour (AQE, Chum et al. 2007).

    >>> equal_weights(np.array([[0.9, 0.5]]))
    array([[1., 1.]])
    """
    return np.ones(similarity_QK.shape)


def decayed_weights(similarity_QK: Scores) -> Scores:
    """Returns (K - j) / K for the neighbour at position j from 0 (AQEwD, Gordo et al. 2017).

    >>> decayed_weights(np.array([[0.9, 0.5]]))
    array([[1. , 0.5]])
    """
    count = similarity_QK.shape[1]
    # No neighbours have no weights, and no division.
    weights_K = (count - np.arange(count)) / max(count, 1)
    return np.broadcast_to(weights_K, similarity_QK.shape)


def power_weights(alpha: float) -> WeightsOf:
    """Returns a function that weighs by similarity to the power `alpha` (Radenović et al. 2018).

    This is alpha-QE, usually with alpha 3; alpha 0 is AQE. A negative similarity counts as 0: with
    an alpha that is not whole, its power would be NaN.

    >>> power_weights(2)(np.array([[0.5, -0.5]]))
    array([[0.25, 0.  ]])
    """

    def weights(similarity_QK: Scores) -> Scores:
        return np.maximum(similarity_QK.astype(np.float64), 0) ** alpha

    return weights
