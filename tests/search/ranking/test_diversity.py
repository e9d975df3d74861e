"""Diversity: the greedy rules, compared with the plainest implementation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tandem.search.ranking.diversity import distinct_places, marginal_order, similarities

F32 = NDArray[np.float32]


def embeddings(count: int, seed: int) -> F32:
    """Returns unit vectors in few dimensions, so that some are alike; every third is a double."""
    points = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    points[2::3] = points[: len(points[2::3])]
    unit: F32 = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit


counts, seeds = st.integers(1, 12), st.integers(0, 10_000)


@given(counts, seeds, st.floats(-1, 1))
def test_the_first_of_similar_items_stays(count: int, seed: int, similarity: float) -> None:
    """A dropped candidate is near one that stays and precedes it; kept ones are near none."""
    points = embeddings(count, seed)

    kept = distinct_places(similarities(points), similarity)

    near = points @ points.T >= similarity
    assert kept[0] == 0
    assert kept == sorted(kept)
    for place in range(count):
        before = [other for other in kept if other < place]
        assert (place in kept) != any(near[place, other] for other in before)


@given(counts, seeds, st.floats(0, 1), st.integers(0, 12))
def test_the_order_is_that_of_maximal_marginal_relevance(
    count: int, seed: int, weight: float, scored_count: int
) -> None:
    """Each next one has the highest value of those left in its block, given those before."""
    points = embeddings(count, seed)
    relevances = np.random.default_rng(seed + 1).uniform(-1, 1, count).tolist()
    blocks = [min(scored_count, count), count - min(scored_count, count)]

    order = marginal_order(relevances, similarities(points), weight, blocks)

    similarity = (points @ points.T).astype(np.float64)
    chosen: list[int] = []
    for place, redundancy in order:
        left = [
            each
            for each in (range(blocks[0]) if len(chosen) < blocks[0] else range(blocks[0], count))
            if each not in chosen
        ]
        values = {
            each: weight * relevances[each]
            - (1 - weight) * max([0.0, *(similarity[each, other] for other in chosen)])
            for each in left
        }
        assert place in left
        assert values[place] >= max(values.values()) - 1e-9
        assert redundancy == max([0.0, *(similarity[place, other] for other in chosen)])
        chosen.append(place)
    assert sorted(chosen) == list(range(count))
