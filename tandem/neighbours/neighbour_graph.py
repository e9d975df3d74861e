"""Makes the graph of mutual neighbours that diffusion runs on.

    G = kernel(s) for the K nearest others, else 0; W = min(G, Gᵀ); Ŵ = D^-1/2 W D^-1/2

with kernel(s) = max(s, 0)^gamma and D the row sums of W (Iscen et al. 2017, section 3). Shapes: Q
queries, N items, K neighbours.
"""

import numpy as np

from tandem.neighbours.neighbour_lists import Scores, nearest_items, nearest_others


def kernel(similarity: Scores, gamma: float) -> Scores:
    """Returns max(s, 0)^gamma."""
    return np.maximum(similarity.astype(np.float64), 0) ** gamma


def mutual_graph(similarity_NN: Scores, k: int, gamma: float) -> Scores:
    """Returns float64 [N, N]: Ŵ, symmetric, with 0 on the diagonal.

    Two items are linked if each is among the `k` nearest others of the other. The row and column of
    an item without a link are 0.

    >>> mutual_graph(np.array([[1, 0.5], [0.5, 1]]), k=1, gamma=3)
    array([[0., 1.],
           [1., 0.]])
    """
    nearest_NK = nearest_others(similarity_NN, k)
    kept_NN = np.zeros(similarity_NN.shape)
    values_NK = kernel(np.take_along_axis(similarity_NN, nearest_NK, axis=1), gamma)
    np.put_along_axis(kept_NN, nearest_NK, values_NK, axis=1)
    links_NN = np.minimum(kept_NN, kept_NN.T)
    degrees_N = links_NN.sum(axis=1)
    scale_N = np.where(degrees_N > 0, 1 / np.sqrt(np.where(degrees_N > 0, degrees_N, 1)), 0)
    return scale_N[:, None] * links_NN * scale_N


def query_seeds(similarity_QN: Scores, k: int, gamma: float) -> Scores:
    """Returns float64 [Q, N]: kernel(s) for each query's `k` nearest items, else 0.

    One published program applies the kernel twice here, which makes s^9 of s^3.
    """
    nearest_QK = nearest_items(similarity_QN, k)
    seeds_QN = np.zeros(similarity_QN.shape)
    values_QK = kernel(np.take_along_axis(similarity_QN, nearest_QK, axis=1), gamma)
    np.put_along_axis(seeds_QN, nearest_QK, values_QK, axis=1)
    return seeds_QN
