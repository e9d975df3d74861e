"""Scores items by diffusion from a query's nearest ones (DFS, Iscen et al. 2017).

    f = (I - alpha Ŵ)^-1 y

with the graph Ŵ and seeds y of neighbour_graph.py, solved by conjugate gradient. A row of Table 1
of LeaPRR (Qu et al. 2023). The graph needs similarities of items to items in one modality. Shapes:
Q queries, N items.
"""

from dataclasses import dataclass

import numpy as np

from tandem.neighbours.neighbour_graph import mutual_graph, query_seeds
from tandem.neighbours.neighbour_lists import Scores


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
    """Returns float64 [Q, N]: scores, which are 0 for items that diffusion does not reach.

    order_with_base orders these by the base.
    """
    graph_NN = mutual_graph(item_similarity_NN, settings.k, settings.gamma)
    seeds_QN = query_seeds(similarity_QN, settings.query_k, settings.gamma)
    system_NN = np.eye(len(graph_NN)) - settings.alpha * graph_NN
    return _solved(system_NN, seeds_QN, settings.tolerance, settings.max_iterations)


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
