"""Scores items by diffusion from a query's nearest ones, over a graph of mutual neighbours.

    G = kernel(s) for the K nearest others, else 0; W = min(G, Gᵀ); Ŵ = D^-1/2 W D^-1/2
    DFS: f = (I - alpha Ŵ)^-1 y
    FSR: f = U diag((1 - alpha) / (1 - alpha lambda)) Uᵀ y

with kernel(s) = max(s, 0)^gamma, D the row sums of W, and the R largest eigenpairs of Ŵ (Iscen et
al. 2017, section 3; Iscen et al. 2018). Both are rows of Table 1 of LeaPRR (Qu et al. 2023). The
graph needs similarities of items to items in one modality. Items that diffusion does not reach
score 0; order_with_base orders them by the base. Shapes: Q queries, N items, K neighbours.
"""

from dataclasses import dataclass

import numpy as np

from tandem.lab.neighbours.lists.neighbour_lists import (
    Indices,
    Scores,
    nearest_items,
    nearest_others,
)

# A spectral score this small, relative to the largest, is rounding: the item is not reached.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class DiffusionSettings:
    """Configures the graph and the solver, by default as the authors' program does."""

    k: int = 50
    """Neighbours of an item in the graph, without itself."""
    query_k: int = 10
    """Items from which a query diffuses."""
    alpha: float = 0.99
    """Share of a score that comes from neighbours, 0 to below 1."""
    gamma: float = 3.0
    """Power of the kernel."""
    tolerance: float = 1e-6
    """Residual, relative to the seeds, at which the solver stops."""
    max_iterations: int = 20
    """Steps after which the solver stops in any case."""


def diffuse(
    similarity_QN: Scores, item_similarity_NN: Scores, settings: DiffusionSettings
) -> Scores:
    """Returns float64 [Q, N]: scores by DFS."""
    graph_NN = mutual_graph(item_similarity_NN, settings.k, settings.gamma)
    seeds_QN = query_seeds(similarity_QN, settings.query_k, settings.gamma)
    system_NN = np.eye(len(graph_NN)) - settings.alpha * graph_NN
    return _solved(system_NN, seeds_QN, settings.tolerance, settings.max_iterations)


def diffuse_spectrally(
    similarity_QN: Scores,
    item_similarity_NN: Scores,
    settings: DiffusionSettings,
    rank: int | None = None,
) -> Scores:
    """Returns float64 [Q, N]: scores by FSR, by default with R = 2,000 eigenpairs as published.

    The authors' solver needs R < N, so 2,000 cannot be what LeaPRR used for 1,000 images: there R
    is one less than the items.
    """
    rank = min(2_000, len(item_similarity_NN) - 1) if rank is None else rank
    graph_NN = mutual_graph(item_similarity_NN, settings.k, settings.gamma)
    values_N, vectors_NN = np.linalg.eigh(graph_NN)  # ascending
    values_R, vectors_NR = values_N[-rank:], vectors_NN[:, -rank:]
    seeds_QN = query_seeds(similarity_QN, settings.query_k, settings.gamma)
    transfer_R = (1 - settings.alpha) / (1 - settings.alpha * values_R)
    scores_QN = (seeds_QN @ vectors_NR * transfer_R) @ vectors_NR.T
    largest_Q1 = np.abs(scores_QN).max(axis=1, keepdims=True, initial=0)
    return np.where(np.abs(scores_QN) > _ROUNDING * largest_Q1, scores_QN, 0)


def mutual_graph(similarity_NN: Scores, k: int, gamma: float) -> Scores:
    """Returns float64 [N, N]: Ŵ, symmetric, with 0 on the diagonal.

    Two items are linked if each is among the `k` nearest others of the other. The row and column of
    an item without a link are 0.

    >>> mutual_graph(np.array([[1, 0.5], [0.5, 1]]), k=1, gamma=3)
    array([[0., 1.],
           [1., 0.]])
    """
    kept_NN = _kept(similarity_NN, nearest_others(similarity_NN, k), gamma)
    links_NN = np.minimum(kept_NN, kept_NN.T)
    degrees_N = links_NN.sum(axis=1)
    scale_N = np.where(degrees_N > 0, 1 / np.sqrt(np.where(degrees_N > 0, degrees_N, 1)), 0)
    return scale_N[:, None] * links_NN * scale_N


def query_seeds(similarity_QN: Scores, k: int, gamma: float) -> Scores:
    """Returns float64 [Q, N]: kernel(s) for each query's `k` nearest items, else 0.

    One published program applies the kernel twice here, which makes s^9 of s^3.
    """
    return _kept(similarity_QN, nearest_items(similarity_QN, k), gamma)


def _kept(similarity_QN: Scores, nearest_QK: Indices, gamma: float) -> Scores:
    """Returns float64 [Q, N]: the kernel of the nearest items' similarities, else 0."""
    kept_QN = np.zeros(similarity_QN.shape)
    values_QK = np.take_along_axis(similarity_QN, nearest_QK, axis=1).astype(np.float64)
    np.put_along_axis(kept_QN, nearest_QK, np.maximum(values_QK, 0) ** gamma, axis=1)
    return kept_QN


def _solved(system_NN: Scores, seeds_QN: Scores, tolerance: float, max_iterations: int) -> Scores:
    """Returns X of X A = B by conjugate gradient, for each row on its own.

    A is symmetric and positive definite: the eigenvalues of Ŵ are at most 1.
    """
    solution_QN = np.zeros_like(seeds_QN)
    residual_QN = seeds_QN.copy()
    direction_QN = residual_QN.copy()
    square_Q = (residual_QN**2).sum(axis=1)
    goal_Q = tolerance**2 * square_Q
    for _ in range(max_iterations):
        active_Q = square_Q > goal_Q
        if not active_Q.any():
            break
        moved_QN = direction_QN @ system_NN
        step_Q = _ratio(square_Q, (direction_QN * moved_QN).sum(axis=1), active_Q)
        solution_QN += step_Q[:, None] * direction_QN
        residual_QN -= step_Q[:, None] * moved_QN
        next_Q = np.where(active_Q, (residual_QN**2).sum(axis=1), square_Q)
        direction_QN = residual_QN + _ratio(next_Q, square_Q, active_Q)[:, None] * direction_QN
        square_Q = next_Q
    return solution_QN


def _ratio(above_Q: Scores, below_Q: Scores, active_Q: np.typing.NDArray[np.bool_]) -> Scores:
    """Returns the quotients of active rows, and 0 for rows that are solved."""
    return np.where(active_Q, above_Q / np.where(active_Q, below_Q, 1), 0)
