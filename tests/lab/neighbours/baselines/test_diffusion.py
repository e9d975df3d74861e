"""Diffusion by hand, and against a direct solution; spectral diffusion against it."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from tandem.lab.neighbours.baselines.diffusion import (
    DiffusionSettings,
    diffuse,
    diffuse_spectrally,
    mutual_graph,
    query_seeds,
)
from tandem.lab.neighbours.lists.neighbour_lists import order_with_base

# A chain: item 1 is near 0 and 2, which are not near each other.
CHAIN = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])


def test_the_graph_by_hand() -> None:
    """Row sums .5, 1, .5, so each link is .5 / √(.5 · 1)."""
    link = np.sqrt(0.5)

    graph = mutual_graph(CHAIN, 2, gamma=1)

    assert_allclose(graph, [[0, link, 0], [link, 0, link], [0, link, 0]])


def test_only_mutual_neighbours_are_linked() -> None:
    """2 has 1 as its nearest, and 1 has 0: 2 has no link, nor a division by 0."""
    similarity = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.5], [0.1, 0.5, 1.0]])

    assert_allclose(mutual_graph(similarity, 1, gamma=3), [[0, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_seeds_by_hand() -> None:
    """.9 and .8 to the third; a program that applies the kernel twice has their ninth powers."""
    similarity = np.array([[0.8, 0.1, 0.9, -0.5]])

    assert_allclose(query_seeds(similarity, 2, gamma=3), [[0.512, 0, 0.729, 0]])
    assert_allclose(query_seeds(similarity, 4, gamma=3), [[0.512, 0.001, 0.729, 0]])


def test_a_chain_by_hand() -> None:
    """With c = .5 √.5: f1 = c (f0 + f2), f2 = c f1 and f0 = 1 + c f1, so f1 = c / (1 - 2 c²)."""
    settings = DiffusionSettings(k=2, query_k=1, alpha=0.5, gamma=1)
    c = 0.5 * np.sqrt(0.5)

    scores = diffuse(np.array([[1.0, 0.0, 0.0]]), CHAIN, settings)

    assert_allclose(scores, [[1 + c * c / 0.75, c / 0.75, c * c / 0.75]], rtol=1e-6)


def test_many_queries_have_the_direct_solution() -> None:
    """Each by its own steps: one of the queries has no seed and is solved at once."""
    rng = np.random.default_rng(1)
    drawn = rng.normal(size=(60, 5)) + 1
    items = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    similarity = np.concatenate([items[:8] @ items.T, -np.ones((1, 60))])
    settings = DiffusionSettings(k=10, query_k=5, max_iterations=200, tolerance=1e-12)

    scores = diffuse(similarity, items @ items.T, settings)

    system = np.eye(60) - 0.99 * mutual_graph(items @ items.T, 10, gamma=3)
    expected = np.linalg.solve(system, query_seeds(similarity, 5, gamma=3).T).T
    assert_allclose(scores, expected, rtol=1e-6, atol=1e-9)
    assert_array_equal(scores[8], np.zeros(60))
    few = diffuse(similarity, items @ items.T, DiffusionSettings(10, 5, max_iterations=2))
    assert not np.allclose(few, expected, rtol=0.1), "the steps do not count"


def test_items_that_are_not_reached_have_the_base_order() -> None:
    """0 and 1 are linked, 2 and 3 are linked; the query seeds 1."""
    similarity = np.eye(4)
    similarity[[0, 1, 2, 3], [1, 0, 3, 2]] = 0.9
    base = np.array([[0.1, 0.8, 0.2, 0.3]])

    scores = diffuse(base, similarity, DiffusionSettings(k=1, query_k=1))

    assert_array_equal(scores[0, 2:], [0, 0])
    assert_array_equal(order_with_base(scores, base), [[1, 0, 3, 2]])


def test_the_spectrum_of_a_chain_by_hand() -> None:
    """Eigenvalues 1, 0 and -1, of which two are kept, with alpha .5: transfers 1 and .5.

    f = .5 (.5, √.5, .5) + .5 √.5 (√.5, 0, -√.5). The missing pair has a transfer of 1/3 and
    .5 (.5, -√.5, .5); with it the scores are half of diffusion's.
    """
    seed, settings = np.array([[1.0, 0.0, 0.0]]), DiffusionSettings(2, 1, alpha=0.5, gamma=1)

    scores = diffuse_spectrally(seed, CHAIN, settings)

    assert_allclose(scores, [[0.5, 0.5 * np.sqrt(0.5), 0.0]], atol=1e-12)
    missing = np.array([0.5, -np.sqrt(0.5), 0.5]) / 6
    assert_allclose((scores + missing) / 0.5, diffuse(seed, CHAIN, settings), rtol=1e-6)


def test_items_without_a_link_have_exactly_no_spectral_score() -> None:
    """Rounding does not order them."""
    similarity = np.eye(5)
    similarity[[0, 1, 2, 3], [1, 0, 3, 2]] = 0.9
    seed = np.array([[0.0, 1.0, 0.0, 0.0, 0.0]])

    scores = diffuse_spectrally(seed, similarity, DiffusionSettings(k=1, query_k=1), rank=2)

    assert_array_equal(scores[0, 2:], [0, 0, 0])
    assert (scores[0, :2] > 0.1).all()
