"""Scores items by diffusion in the spectral domain (FSR, Iscen et al. 2018).

    f = U diag((1 - alpha) / (1 - alpha lambda)) Uᵀ y

with the R largest eigenpairs of the graph Ŵ, computed once for all queries. A row of Table 1 of
LeaPRR (Qu et al. 2023). Shapes: Q queries, N items, R eigenpairs.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from tandem.neighbours.neighbour_lists import Scores

# A score this small, relative to the largest, is rounding: the item is not reached.
_ROUNDING = 1e-12


def default_rank(item_count: int) -> int:
    """Returns R: 2,000 as published, or one less than the items.

    The authors' solver needs R < N, so 2,000 cannot be what LeaPRR used for 1,000 images.

    >>> default_rank(1_000), default_rank(5_000)
    (999, 2000)
    """
    return min(2_000, item_count - 1)


@dataclass(frozen=True, slots=True)
class SpectralGraph:
    """Holds the largest eigenpairs of a graph."""

    eigenvalues: Scores
    """float64 [R], ascending."""
    vectors: Scores
    """float64 [N, R], of unit length."""

    @classmethod
    def of(cls, graph_NN: Scores, rank: int) -> Self:
        """Decomposes the graph Ŵ of mutual_graph."""
        values_N, vectors_NN = np.linalg.eigh(graph_NN)
        return cls(values_N[-rank:], vectors_NN[:, -rank:])

    def diffuse(self, seeds_QN: Scores, alpha: float) -> Scores:
        """Returns float64 [Q, N]: scores of items from the seeds of query_seeds.

        order_with_base orders items without a score by the base.
        """
        transfer_R = (1 - alpha) / (1 - alpha * self.eigenvalues)
        scores_QN = (seeds_QN @ self.vectors * transfer_R) @ self.vectors.T
        largest_Q1 = np.abs(scores_QN).max(axis=1, keepdims=True, initial=0)
        return np.where(np.abs(scores_QN) > _ROUNDING * largest_Q1, scores_QN, 0)
