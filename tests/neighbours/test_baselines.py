"""What all baselines have in common: nothing depends on the order of items, queries or calls."""

import doctest
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tandem.neighbours import (
    neighbour_graph,
    neighbour_lists,
    neighbour_weights,
    query_expansion,
    spectral,
)
from tandem.neighbours.database_augmentation import (
    augment_items,
    expand_in_sequence,
    expand_jointly,
)
from tandem.neighbours.diffusion import DiffusionSettings, diffuse
from tandem.neighbours.neighbour_graph import mutual_graph, query_seeds
from tandem.neighbours.neighbour_lists import Indices, Scores, order_with_base
from tandem.neighbours.neighbour_weights import decayed_weights, equal_weights, power_weights
from tandem.neighbours.query_expansion import expand_queries
from tandem.neighbours.reciprocal_neighbours import rerank_by_similar_queries, rerank_reciprocally
from tandem.neighbours.spectral import SpectralGraph

ScoresOf = Callable[[Scores, Scores, int], Scores]
WEIGHTS = {"equal": equal_weights, "decayed": decayed_weights, "power": power_weights(3)}
WIDTH = 6


def _expanded(weights: str) -> ScoresOf:
    return lambda queries, items, k: expand_queries(queries, items, k, WEIGHTS[weights]) @ items.T


def _augmented(weights: str) -> ScoresOf:
    return lambda queries, items, k: queries @ augment_items(items, k, WEIGHTS[weights]).T


def _in_sequence(weights: str) -> ScoresOf:
    def scores(queries: Scores, items: Scores, k: int) -> Scores:
        expanded, augmented = expand_in_sequence(queries, items, k, WEIGHTS[weights])
        return expanded @ augmented.T

    return scores


def _jointly(weights: str) -> ScoresOf:
    def scores(queries: Scores, items: Scores, k: int) -> Scores:
        expanded, augmented = expand_jointly(queries, items, k, WEIGHTS[weights])
        return expanded @ augmented.T

    return scores


def _diffused(queries: Scores, items: Scores, k: int) -> Scores:
    settings = DiffusionSettings(k, query_k=k + 1)
    return diffuse(queries @ items.T, items @ items.T, settings)


def _spectral(queries: Scores, items: Scores, k: int) -> Scores:
    graph = SpectralGraph.of(mutual_graph(items @ items.T, k, gamma=3), rank=len(items) - 1)
    return graph.diffuse(query_seeds(queries @ items.T, k + 1, gamma=3), alpha=0.99)


def _positions(order: Indices) -> Scores:
    return -np.argsort(order, axis=1).astype(np.float64)


def _reciprocal(queries: Scores, items: Scores, k: int) -> Scores:
    return _positions(rerank_reciprocally(queries @ items.T, k))


def _by_similar_queries(queries: Scores, items: Scores, k: int) -> Scores:
    near = min(2, max(len(queries) - 1, 0))
    return _positions(rerank_by_similar_queries(queries @ items.T, k, queries @ queries.T, near))


BASELINES: dict[str, ScoresOf] = {
    f"{name}, {weights}": made(weights)
    for name, made in {
        "expanded": _expanded,
        "augmented": _augmented,
        "in sequence": _in_sequence,
        "jointly": _jointly,
    }.items()
    for weights in WEIGHTS
} | {
    "diffused": _diffused,
    "spectral": _spectral,
    "reciprocal": _reciprocal,
    "by similar queries": _by_similar_queries,
}
each_baseline = pytest.mark.parametrize("name", BASELINES)


def _embeddings(count: int, seed: int) -> Scores:
    drawn = np.random.default_rng(seed).normal(size=(count, WIDTH)) + 0.5
    unit: Scores = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def test_doctests() -> None:
    """The examples in the docstrings are true."""
    for module in [neighbour_graph, neighbour_lists, neighbour_weights, query_expansion, spectral]:
        result = doctest.testmod(module)

        assert result.attempted > 0
        assert result.failed == 0


@each_baseline
def test_permuted_items_have_permuted_scores(name: str) -> None:
    queries, items = _embeddings(7, seed=1), _embeddings(20, seed=2)
    permutation = np.random.default_rng(3).permutation(20)

    scores = BASELINES[name](queries, items, 5)

    permuted = BASELINES[name](queries, items[permutation], 5)
    assert_allclose(permuted, scores[:, permutation], atol=1e-9)
    assert not np.allclose(permuted, scores), "the permutation did nothing"


@each_baseline
def test_permuted_queries_have_permuted_scores(name: str) -> None:
    queries, items = _embeddings(7, seed=1), _embeddings(20, seed=2)
    permutation = np.random.default_rng(3).permutation(7)

    permuted = BASELINES[name](queries[permutation], items, 5)

    assert_allclose(permuted, BASELINES[name](queries, items, 5)[permutation], atol=1e-9)


@each_baseline
def test_a_second_call_gives_the_same_bits(name: str) -> None:
    queries, items = _embeddings(7, seed=1), _embeddings(20, seed=2)

    assert_array_equal(BASELINES[name](queries, items, 5), BASELINES[name](queries, items, 5))


@each_baseline
def test_inputs_are_not_changed(name: str) -> None:
    queries, items = _embeddings(7, seed=1), _embeddings(20, seed=2)

    BASELINES[name](queries, items, 5)

    assert_array_equal(queries, _embeddings(7, seed=1))
    assert_array_equal(items, _embeddings(20, seed=2))


@each_baseline
def test_every_baseline_differs_from_the_base_order(name: str) -> None:
    """The control of the others: a function that returns similarities would pass all of them."""
    queries, items = _embeddings(7, seed=1), _embeddings(20, seed=2)
    base = queries @ items.T

    order = order_with_base(BASELINES[name](queries, items, 5), base)

    assert (order != order_with_base(base, base)).any()


@each_baseline
def test_duplicates_stay_in_order_of_their_index(name: str) -> None:
    """With every item a neighbour of every other, no list ends between two equal ones."""
    queries, items = _embeddings(7, seed=1), _embeddings(6, seed=2)
    doubled = np.concatenate([items, items])

    scores = BASELINES[name](queries, doubled, 11)

    if name not in ("reciprocal", "by similar queries"):  # their scores are positions
        assert_allclose(scores[:, :6], scores[:, 6:], atol=1e-9)
    order = order_with_base(scores.round(9), queries @ doubled.T)
    places = np.argsort(order, axis=1)
    assert (places[:, :6] < places[:, 6:]).all()


@each_baseline
def test_no_queries_have_no_scores(name: str) -> None:
    scores = BASELINES[name](np.zeros((0, WIDTH)), _embeddings(20, seed=2), 5)

    assert scores.shape == (0, 20)
