"""Finds nearest items, orders items by scores, and holds LeaPRR's view of a corpus.

Equal similarities keep the order of their index, so each list is deterministic. Shapes: Q queries,
N items, K neighbours, D width, I images, T texts, H list.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

_BLOCK_ROWS = 1_024


def nearest_items(similarity_QN: Scores, k: int) -> Indices:
    """Returns int64 [Q, K]: the `k` most similar items of each row, the most similar first.

    >>> nearest_items(np.array([[0.1, 0.9, 0.9]]), 2)
    array([[1, 2]])
    """
    return np.argsort(-similarity_QN, axis=1, kind="stable")[:, :k]


def nearest_lists(similarity_QN: Scores, depth: int) -> Indices:
    """Returns int64 [Q, K]: nearest_items of `depth`, or of everything where there is less.

    It sorts block by block: a sort of a whole corpus takes 8 bytes a pair.
    """
    count = min(depth, similarity_QN.shape[1])
    blocks = [
        nearest_items(np.asarray(similarity_QN[start : start + _BLOCK_ROWS]), count)
        for start in range(0, len(similarity_QN), _BLOCK_ROWS)
    ]
    return np.concatenate([np.zeros((0, count), np.int64), *blocks])


def nearest_others(similarity_NN: Scores, k: int) -> Indices:
    """Returns int64 [N, K]: the `k` other items most similar to each item.

    An item is never its own neighbour.
    """
    others_NN = similarity_NN.astype(np.float64)
    np.fill_diagonal(others_NN, -np.inf)
    return np.argsort(-others_NN, axis=1, kind="stable")[:, :k]


def order_with_base(scores_QN: Scores, base_QN: Scores) -> Indices:
    """Returns int64 [Q, N]: items by score, equal scores by `base_QN`, then by index.

    Diffusion gives 0 to all items that it does not reach, so the base orders them.

    >>> order_with_base(np.array([[0.0, 0.0, 1.0]]), np.array([[0.2, 0.3, 0.1]]))
    array([[2, 1, 0]])
    """
    return np.lexsort((-base_QN, -scores_QN), axis=1)


@dataclass(frozen=True, slots=True)
class SimilarityLists:
    """Holds one direction of a corpus: queries of one modality, items of the other.

    The matrices may be float16, and mapped from a file. Everything else that LeaPRR reads is made
    from them for one batch.
    """

    cross: NDArray[np.floating[Any]]
    """[Q, N], the bi-encoder's, on a scale of cosines: refined scores are averaged with them."""
    queries: NDArray[np.floating[Any]]
    """[Q, Q], within the queries' modality."""
    items: NDArray[np.floating[Any]]
    """[N, N], within the items' modality."""
    query_images: Indices
    """int64 [Q], the image that each query is or describes."""
    item_images: Indices
    """int64 [N], the same of each item; an item answers the queries of its image."""
    items_of_query: Indices
    """int64 [Q, H], the nearest first, as all lists."""
    queries_of_query: Indices
    """int64 [Q, H], usually led by the query itself."""
    items_of_item: Indices
    queries_of_item: Indices
    query_pools: Indices | None = None
    """int64 [Q, P], the first P of items_of_query in a cross-encoder's order; None without one."""
    item_pools: Indices | None = None
    """int64 [N, P], the same of queries_of_item."""

    def found_items(self, queries_B: Indices) -> Indices:
        """Returns int64 [B, H]: each query's items as its search orders them."""
        near_BH = self.items_of_query[queries_B]
        if self.query_pools is None:
            return near_BH
        pools_BP = self.query_pools[queries_B]
        return np.concatenate([pools_BP, near_BH[:, pools_BP.shape[1] :]], axis=1)

    def found(self) -> Scores:
        """Returns float64 [Q, N]: all similarities, each query's as its search knows them."""
        found_QN = np.array(self.cross, np.float64)
        if self.query_pools is not None:
            near_QP = self.items_of_query[:, : self.query_pools.shape[1]]
            shared_QP = np.take_along_axis(found_QN, near_QP, axis=1)
            np.put_along_axis(found_QN, self.query_pools, shared_QP, axis=1)
        return found_QN

    def found_similarities(self, queries_B: Indices, items_BN: Indices) -> Scores:
        """Returns [B, N]: the similarities of each query to some items, as its search knows them.

        The pool's pairs exchange theirs: the cross-encoder's first has the largest, and so on.
        """
        raw_BN: Scores = self.cross[queries_B[:, None], items_BN]
        if self.query_pools is None:
            return raw_BN
        pools_BP = self.query_pools[queries_B]
        near_BP = self.items_of_query[queries_B, : pools_BP.shape[1]]
        is_at_BNP = items_BN[:, :, None] == pools_BP[:, None, :]
        holders_BN = np.take_along_axis(near_BP, is_at_BNP.argmax(axis=2), axis=1)
        shared_BN = self.cross[queries_B[:, None], holders_BN]
        return np.where(is_at_BNP.any(axis=2), shared_BN, raw_BN)

    @property
    def depth(self) -> int:
        """The entries of the shortest lists."""
        of_queries, of_items = self.queries_of_query, self.queries_of_item
        lists = self.items_of_query, self.items_of_item, of_queries, of_items
        return min(each.shape[1] for each in lists)

    def cut(self, depth: int) -> "SimilarityLists":
        """Returns the same with lists of `depth` entries at most."""
        return replace(
            self,
            items_of_query=self.items_of_query[:, :depth],
            queries_of_query=self.queries_of_query[:, :depth],
            items_of_item=self.items_of_item[:, :depth],
            queries_of_item=self.queries_of_item[:, :depth],
        )

    def reversed(self) -> "SimilarityLists":
        """Returns the view of the items that find the queries."""
        return SimilarityLists(
            self.cross.T,
            self.items,
            self.queries,
            self.item_images,
            self.query_images,
            self.queries_of_item,
            self.items_of_item,
            self.queries_of_query,
            self.items_of_query,
            self.item_pools,
            self.query_pools,
        )
