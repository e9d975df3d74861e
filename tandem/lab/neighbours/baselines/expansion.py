"""Expands queries and items by their nearest: AQE, AQEwD and alpha-QE, and their DBA.

    expanded = normalised(query + sum over the K nearest items of weight · item)

These are rows of Table 1 of LeaPRR (Qu et al. 2023, section 4.2), which states neither K nor alpha.
With K = 1 the first item cannot change, as the R@1 in that table show. Across modalities, a query
of one is expanded by items of the other. Database augmentation (ADBA, ADBAwD, alpha-DBA) averages
the searched items with their own neighbours. Shapes: Q queries, N items, K neighbours, the most
similar first, D width.
"""

from collections.abc import Callable

import numpy as np

from tandem.lab.neighbours.lists.neighbour_lists import Scores, nearest_items, nearest_others

WeightsOf = Callable[[Scores], Scores]
"""Gives the weights [Q, K] of neighbours by their similarities; an embedding's own weight is 1."""


def equal_weights(similarity_QK: Scores) -> Scores:
    """Returns 1 for each neighbour (AQE, Chum et al. 2007)."""
    return np.ones(similarity_QK.shape)


def decayed_weights(similarity_QK: Scores) -> Scores:
    """Returns (K - j) / K for the neighbour at position j from 0 (AQEwD, Gordo et al. 2017).

    >>> decayed_weights(np.array([[0.9, 0.5]]))
    array([[1. , 0.5]])
    """
    count = similarity_QK.shape[1]
    return np.broadcast_to((count - np.arange(count)) / count, similarity_QK.shape)


def power_weights(alpha: float) -> WeightsOf:
    """Returns a function that weighs by similarity to the power `alpha` (Radenović et al. 2018).

    This is alpha-QE, usually with alpha 3; alpha 0 is AQE. A negative similarity counts as 0: with
    an alpha that is not whole, its power would be NaN.

    >>> power_weights(2)(np.array([[0.5, -0.5]]))
    array([[0.25, 0.  ]])
    """
    return lambda similarity_QK: np.maximum(similarity_QK.astype(np.float64), 0) ** alpha


def expand_queries(queries_QD: Scores, items_ND: Scores, k: int, weights_of: WeightsOf) -> Scores:
    """Returns float64 [Q, D]: each query averaged with its `k` nearest items, of unit length.

    >>> expand_queries(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), 1, equal_weights).round(3)
    array([[0.707, 0.707]])
    """
    similarity_QN = queries_QD @ items_ND.T
    nearest_QK = nearest_items(similarity_QN, k)
    weights_QK = weights_of(np.take_along_axis(similarity_QN, nearest_QK, axis=1))
    return _averaged(queries_QD, items_ND[nearest_QK], weights_QK)


def augment_items(items_ND: Scores, k: int, weights_of: WeightsOf) -> Scores:
    """Returns float64 [N, D]: each item averaged with its `k` nearest others, of unit length.

    The published code sets an item's similarity to itself to 0 instead of excluding it. There, an
    item whose others all have negative similarities is its own neighbour.
    """
    similarity_NN = items_ND @ items_ND.T
    nearest_NK = nearest_others(similarity_NN, k)
    weights_NK = weights_of(np.take_along_axis(similarity_NN, nearest_NK, axis=1))
    return _averaged(items_ND, items_ND[nearest_NK], weights_NK)


def expand_in_sequence(
    queries_QD: Scores, items_ND: Scores, k: int, weights_of: WeightsOf
) -> tuple[Scores, Scores]:
    """Returns queries and items: the items augmented, then the queries expanded by these items."""
    augmented_ND = augment_items(items_ND, k, weights_of)
    return expand_queries(queries_QD, augmented_ND, k, weights_of), augmented_ND


def expand_jointly(
    queries_QD: Scores, items_ND: Scores, k: int, weights_of: WeightsOf
) -> tuple[Scores, Scores]:
    """Returns queries and items, each expanded by its nearest others among both.

    So a query's score depends on which other queries are expanded with it.
    """
    both = augment_items(np.concatenate([queries_QD, items_ND]), k, weights_of)
    return both[: len(queries_QD)], both[len(queries_QD) :]


def _averaged(embeddings_QD: Scores, neighbours_QKD: Scores, weights_QK: Scores) -> Scores:
    """Returns float64 [Q, D]: embeddings plus weighted neighbours, scaled to unit length.

    A sum of length 0, of opposite embeddings, stays 0 and is similar to nothing.
    """
    sums_QD = embeddings_QD.astype(np.float64) + np.einsum(
        "qk,qkd->qd", weights_QK, neighbours_QKD.astype(np.float64)
    )
    lengths_Q1 = np.linalg.norm(sums_QD, axis=1, keepdims=True)
    expanded_QD: Scores = sums_QD / np.where(lengths_Q1 > 0, lengths_Q1, 1)
    return expanded_QD
