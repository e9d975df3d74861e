"""Turns scores into orders, and orders into ranks.

Every order is complete and deterministic. Reranking reorders the pool and keeps the rest after it
in the bi-encoder's order, which the code of Geigle et al. 2022 drops. Ties go to the higher
similarity, then to the item that is first in a given order. So R@m for m up to k equals the
paper's, and median rank, MRR and k below 10 are defined as well.

Shapes: Q queries, N items, K pool.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Order = NDArray[np.int64]
Scores = NDArray[np.floating[Any]]


def retrieve_order(similarity_QN: Scores, tie_order_N: Sequence[int] | None = None) -> Order:
    """Returns int64 [Q, N]: each query's items, the most similar first.

    Ties are ordered by `tie_order_N`, or by number, which must not depend on the answer: a matrix
    of equal values would have a recall. Raises ValueError if a similarity is NaN.
    """
    if tie_order_N is None:
        return _descending(similarity_QN)
    order_N = np.asarray(tie_order_N, np.int64)
    return order_N[_descending(similarity_QN[:, order_N])]


def tied_count(similarity_QN: Scores, answers: Sequence[Collection[int]]) -> int:
    """Returns the number of queries with another item exactly as similar as their best answer.

    >>> tied_count(np.array([[0.5, 0.5, 0.1], [0.5, 0.5, 0.1]]), [{0}, {0, 1}])
    1
    """
    count = 0
    for similarity_N, wanted in zip(similarity_QN, answers, strict=True):
        of_answers = similarity_N[list(wanted)]
        best = of_answers.max()
        count += int((similarity_N == best).sum() > (of_answers == best).sum())
    return count


def rerank_order(retrieved_QN: Order, scores_QK: Scores) -> Order:
    """Returns int64 [Q, N]: the first K of each row by score, then the rest unchanged.

    This is cooperative retrieval (Geigle et al. 2022, section 3.3). scores_QK[q, j] is the score of
    item retrieved_QN[q, j]. Raises ValueError if a score is NaN.
    """
    pool_size = scores_QK.shape[1]
    if pool_size > retrieved_QN.shape[1]:
        raise ValueError(f"{pool_size} scores a query for {retrieved_QN.shape[1]} items")
    pool_QK, rest = retrieved_QN[:, :pool_size], retrieved_QN[:, pool_size:]
    reordered_QK = np.take_along_axis(pool_QK, _descending(scores_QK), axis=1)
    return np.concatenate([reordered_QK, rest], axis=1)


def all_answer_ranks(order_QN: Order, answers: Sequence[Collection[int]]) -> list[tuple[int, ...]]:
    """Returns the ranks of each query's answers, from 1, ascending.

    Raises ValueError naming a query one of whose answers is not in its order.

    >>> all_answer_ranks(np.array([[2, 0, 1]]), [{0, 1}])
    [(2, 3)]
    """
    ranks = []
    for number, (order_N, wanted) in enumerate(zip(order_QN, answers, strict=True)):
        places = np.flatnonzero(np.isin(order_N, list(wanted)))
        if len(places) < max(1, len(wanted)):
            raise ValueError(f"query {number} has no answer among the items")
        ranks.append(tuple(int(place) + 1 for place in places))
    return ranks


def first_answer_ranks(order_QN: Order, answers: Sequence[Collection[int]]) -> list[int]:
    """Returns the rank of each query's best answer, from 1."""
    return [ranks[0] for ranks in all_answer_ranks(order_QN, answers)]


def _descending(scores: Scores) -> Order:
    if np.isnan(scores).any():
        raise ValueError("a score is NaN")
    # Stable, so that equal scores keep their order.
    return np.argsort(-scores, axis=1, kind="stable")
