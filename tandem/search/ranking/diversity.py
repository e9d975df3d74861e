"""Diversifies ordered candidates by their embeddings.

Shapes: N candidates, d dimensions.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def similarities(embeddings_ND: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns the similarity of every two candidates, [N, N]."""
    return (embeddings_ND @ embeddings_ND.T).astype(np.float64)


def distinct_places(similarity_NN: NDArray[np.float64], similarity: float) -> list[int]:
    """Returns the places, from 0, of the candidates to keep, in their order.

    A candidate is dropped if one that is kept before it is at least this similar.
    """
    is_near_NN = similarity_NN >= similarity
    is_gone = np.zeros(len(similarity_NN), dtype=np.bool_)
    kept = []
    for place in range(len(similarity_NN)):
        if not is_gone[place]:
            kept.append(place)
            is_gone |= is_near_NN[place]
    return kept


def marginal_order(
    relevances: Sequence[float],
    similarity_NN: NDArray[np.float64],
    relevance_weight: float,
    block_sizes: Sequence[int],
) -> list[tuple[int, float]]:
    """Returns places, from 0, by maximal marginal relevance, each with its redundancy.

    The next is always the one with the highest

        relevance_weight * relevance - (1 - relevance_weight) * redundancy

    where redundancy is its highest similarity to those already chosen, at least 0; ties go to the
    earlier candidate. The blocks, of N candidates together, keep their order: each is ordered by
    itself, but its redundancy counts the blocks before it.
    """
    gain_N = relevance_weight * np.asarray(relevances, dtype=np.float64)
    redundancy_N = np.zeros(len(gain_N), dtype=np.float64)
    order: list[tuple[int, float]] = []
    stop = 0
    for size in block_sizes:
        start, stop = stop, stop + size
        value = np.empty(size, dtype=np.float64)
        for _ in range(size):
            np.multiply(redundancy_N[start:stop], relevance_weight - 1, out=value)
            value += gain_N[start:stop]
            place = start + int(value.argmax())
            order.append((place, float(redundancy_N[place])))
            gain_N[place] = -np.inf
            np.maximum(redundancy_N, similarity_NN[place], out=redundancy_N)
    return order
