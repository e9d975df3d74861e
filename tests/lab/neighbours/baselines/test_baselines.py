"""What all baselines have in common: nothing depends on the order of items or queries."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tandem.lab.neighbours.baselines.diffusion import DiffusionSettings, diffuse, diffuse_spectrally
from tandem.lab.neighbours.baselines.expansion import (
    augment_items,
    decayed_weights,
    equal_weights,
    expand_in_sequence,
    expand_jointly,
    expand_queries,
    power_weights,
)
from tandem.lab.neighbours.baselines.reciprocal_neighbours import (
    rerank_by_similar_queries,
    rerank_reciprocally,
)
from tandem.lab.neighbours.lists.neighbour_lists import Indices, Scores, order_with_base

WIDTH = 6


def _expanded(queries: Scores, items: Scores, k: int) -> Scores:
    return expand_queries(queries, items, k, equal_weights) @ items.T


def _augmented(queries: Scores, items: Scores, k: int) -> Scores:
    return queries @ augment_items(items, k, decayed_weights).T


def _in_sequence(queries: Scores, items: Scores, k: int) -> Scores:
    expanded, augmented = expand_in_sequence(queries, items, k, power_weights(3))
    return expanded @ augmented.T


def _jointly(queries: Scores, items: Scores, k: int) -> Scores:
    expanded, augmented = expand_jointly(queries, items, k, power_weights(3))
    return expanded @ augmented.T


def _diffused(queries: Scores, items: Scores, k: int) -> Scores:
    return diffuse(queries @ items.T, items @ items.T, DiffusionSettings(k, query_k=k + 1))


def _spectral(queries: Scores, items: Scores, k: int) -> Scores:
    settings = DiffusionSettings(k, query_k=k + 1)
    return diffuse_spectrally(queries @ items.T, items @ items.T, settings)


def _positions(order: Indices) -> Scores:
    return -np.argsort(order, axis=1).astype(np.float64)


def _reciprocal(queries: Scores, items: Scores, k: int) -> Scores:
    return _positions(rerank_reciprocally(queries @ items.T, k))


def _by_similar_queries(queries: Scores, items: Scores, k: int) -> Scores:
    return _positions(rerank_by_similar_queries(queries @ items.T, k, queries @ queries.T, 2))


BY_POSITION = (_reciprocal, _by_similar_queries)
each_baseline = pytest.mark.parametrize(
    "scores_of",
    [_expanded, _augmented, _in_sequence, _jointly, _diffused, _spectral, *BY_POSITION],
)


def _embeddings(count: int, seed: int) -> Scores:
    drawn = np.random.default_rng(seed).normal(size=(count, WIDTH)) + 0.5
    unit: Scores = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


@each_baseline
def test_permuted_items_and_queries_have_permuted_scores(
    scores_of: Callable[[Scores, Scores, int], Scores],
) -> None:
    queries, items = _embeddings(7, seed=1), _embeddings(20, seed=2)
    of_items, of_queries = (np.random.default_rng(3).permutation(count) for count in (20, 7))

    scores = scores_of(queries, items, 5)

    permuted = scores_of(queries[of_queries], items[of_items], 5)
    assert_allclose(permuted, scores[of_queries][:, of_items], atol=1e-9)
    # A function that returns similarities would pass, and one that changes its inputs might.
    base = queries @ items.T
    assert (order_with_base(scores, base) != order_with_base(base, base)).any()
    assert_array_equal(items, _embeddings(20, seed=2))


@each_baseline
def test_duplicates_stay_in_order_of_their_index(
    scores_of: Callable[[Scores, Scores, int], Scores],
) -> None:
    """With every item a neighbour of every other, no list ends between two equal ones."""
    queries, items = _embeddings(7, seed=1), _embeddings(6, seed=2)
    doubled = np.concatenate([items, items])

    scores = scores_of(queries, doubled, 11)

    if scores_of not in BY_POSITION:
        assert_allclose(scores[:, :6], scores[:, 6:], atol=1e-9)
    order = order_with_base(scores.round(9), queries @ doubled.T)
    places = np.argsort(order, axis=1)
    assert (places[:, :6] < places[:, 6:]).all()
