"""Expands queries by their nearest items: AQE, AQEwD and alpha-QE.

    expanded = normalised(query + sum over the K nearest items of weight · item)

These are rows of Table 1 of LeaPRR (Qu et al. 2023, section 4.2), which states neither K nor alpha.
With K = 1 the first item cannot change, as the R@1 in that table show. Across modalities, a query
of one is expanded by items of the other. Shapes: Q queries, N items, K neighbours, D width.
"""

import numpy as np

from tandem.neighbours.neighbour_lists import Scores, nearest_items
from tandem.neighbours.neighbour_weights import WeightsOf


def expand_queries(queries_QD: Scores, items_ND: Scores, k: int, weights_of: WeightsOf) -> Scores:
    """Returns float64 [Q, D]: each query averaged with its `k` nearest items, of unit length.

    >>> from tandem.neighbours.neighbour_weights import equal_weights
    >>> expand_queries(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), 1, equal_weights).round(3)
    array([[0.707, 0.707]])
    """
    similarity_QN = queries_QD @ items_ND.T
    nearest_QK = nearest_items(similarity_QN, k)
    weights_QK = weights_of(np.take_along_axis(similarity_QN, nearest_QK, axis=1))
    return averaged(queries_QD, items_ND[nearest_QK], weights_QK)


def averaged(embeddings_QD: Scores, neighbours_QKD: Scores, weights_QK: Scores) -> Scores:
    """Returns float64 [Q, D]: embeddings plus weighted neighbours, scaled to unit length.

    A sum of length 0, of opposite embeddings, stays 0 and is similar to nothing.
    """
    sums_QD = embeddings_QD.astype(np.float64) + np.einsum(
        "qk,qkd->qd", weights_QK, neighbours_QKD.astype(np.float64)
    )
    lengths_Q1 = np.linalg.norm(sums_QD, axis=1, keepdims=True)
    expanded_QD: Scores = sums_QD / np.where(lengths_Q1 > 0, lengths_Q1, 1)
    return expanded_QD
