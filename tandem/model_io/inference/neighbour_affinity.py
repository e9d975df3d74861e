"""Computes neighbour affinity: how many near images and texts two nodes share.

Qu et al. 2023, equations 2 to 4. Shapes: B graphs, V nodes, C nearest of one modality.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Scores = NDArray[np.floating[Any]]


def neighbour_affinity(
    near_images_BVC: Indices,
    near_texts_BVC: Indices,
    valid_BV: NDArray[np.bool_],
    sharpness: float,
    threshold_nodes: int | None = None,
) -> Scores:
    """Returns float64 [B, V, V]: the shares in a valid node's row sum to 1.

    Counts the neighbours that two nodes share (a node shares all with itself), normalises the rows,
    sets shares of `sharpness` / `threshold_nodes` or less to 0, and normalises again. By default
    `threshold_nodes` is the number of the graph's valid nodes; with a smaller one, a row may be
    all 0. Rows and columns of invalid nodes are 0.
    """
    both_valid_BVV = valid_BV[:, :, None] & valid_BV[:, None, :]
    shared_BVV = _shared(near_images_BVC) + _shared(near_texts_BVC)
    diagonal = np.arange(valid_BV.shape[1])
    shared_BVV[:, diagonal, diagonal] = near_images_BVC.shape[2] + near_texts_BVC.shape[2]
    shares_BVV = _row_normalised(np.where(both_valid_BVV, shared_BVV, 0))
    nodes_B = valid_BV.sum(axis=1) if threshold_nodes is None else threshold_nodes
    threshold_B11 = np.reshape(sharpness / np.maximum(nodes_B, 1), (-1, 1, 1))
    # A node's share with itself is at least 1 / V, so up to a sharpness of 1 no row becomes 0.
    return _row_normalised(np.where(shares_BVV > threshold_B11, shares_BVV, 0))


def _shared(near_BVC: Indices) -> NDArray[np.int64]:
    """Returns int64 [B, V, V]: the size of the intersection of two nodes' lists."""
    counts = np.zeros((*near_BVC.shape[:2], near_BVC.shape[1]), np.int64)
    # Entry by entry, because all at once take B V V C C bytes.
    for entry in range(near_BVC.shape[2]):
        equal_BVVC = near_BVC[:, :, None, entry, None] == near_BVC[:, None, :, :]
        counts += equal_BVVC.any(axis=3)
    return counts


def _row_normalised(shares_BVV: NDArray[np.generic]) -> Scores:
    shares = np.asarray(shares_BVV, np.float64)
    sums = shares.sum(axis=2, keepdims=True)
    normalised: Scores = shares / np.where(sums > 0, sums, 1)
    return normalised
