"""Reranks by reverse ranks: k-reciprocal nearest neighbours (KRNN, Wang et al. 2019, MTFN-RR).

An item comes first if the query is near the front of the item's own list. Only similarities across
modalities are needed. A row of Table 1 of LeaPRR (Qu et al. 2023).

The authors' program for finding images ranks by the best position of any of the five captions of
the query's own image, so it reads the ground truth. The functions here do not get the answers.
Shapes: Q queries, N items, K pool, M neighbours.
"""

import numpy as np

from tandem.lab.neighbours.lists.neighbour_lists import (
    Indices,
    Scores,
    nearest_items,
    nearest_others,
)


def rerank_reciprocally(similarity_QN: Scores, k: int) -> Indices:
    """Returns int64 [Q, N]: the first `k` by the query's rank in the item's list, then the rest.

    Equal ranks keep the base order, and the rest does too. For texts to images, the matrix is
    transposed. In the authors' program `k` is 15 for the texts of an image, and 20 for the images
    of a text.
    """
    return _reordered(similarity_QN, _reverse_ranks(similarity_QN), k)


def rerank_by_similar_queries(
    similarity_QN: Scores, k: int, query_similarity_QQ: Scores, neighbour_count: int
) -> Indices:
    """Returns int64 [Q, N]: like rerank_reciprocally, by the best rank among similar queries.

    Each query's `neighbour_count` nearest queries by `query_similarity_QQ` stand in for the other
    captions of its image, which are not known: 4, as the authors' images have five captions.
    """
    ranks_QN = _reverse_ranks(similarity_QN)
    near_QM = nearest_others(query_similarity_QQ, neighbour_count)
    best_QN = np.minimum(ranks_QN, ranks_QN[near_QM].min(axis=1, initial=len(ranks_QN)))
    return _reordered(similarity_QN, best_QN, k)


def _reverse_ranks(similarity_QN: Scores) -> Indices:
    """Returns int64 [Q, N]: the position from 0 of query q in the list of item n."""
    order_NQ = nearest_items(similarity_QN.T, len(similarity_QN))
    return np.argsort(order_NQ, axis=1, kind="stable").T


def _reordered(similarity_QN: Scores, ranks_QN: Indices, k: int) -> Indices:
    order_QN = nearest_items(similarity_QN, similarity_QN.shape[1])
    pool_QK, rest = order_QN[:, :k], order_QN[:, k:]
    ranks_QK = np.take_along_axis(ranks_QN, pool_QK, axis=1)
    by_rank_QK = np.argsort(ranks_QK, axis=1, kind="stable")
    return np.concatenate([np.take_along_axis(pool_QK, by_rank_QK, axis=1), rest], axis=1)
