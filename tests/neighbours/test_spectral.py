"""Spectral diffusion by hand, and against diffusion."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from tandem.neighbours.diffusion import DiffusionSettings, diffuse
from tandem.neighbours.neighbour_graph import mutual_graph
from tandem.neighbours.spectral import SpectralGraph

CHAIN = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
SEED = np.array([[1.0, 0.0, 0.0]])


def test_a_chain_by_hand() -> None:
    """Eigenvalues 1, 0 and -1, of which two are kept, with alpha .5: transfers 1 and .5.

    f = .5 (.5, √.5, .5) + .5 √.5 (√.5, 0, -√.5).
    """
    graph = SpectralGraph.of(mutual_graph(CHAIN, 2, gamma=1), rank=2)

    assert_allclose(graph.eigenvalues, [0, 1], atol=1e-12)
    assert_allclose(graph.diffuse(SEED, 0.5), [[0.5, 0.5 * np.sqrt(0.5), 0.0]], atol=1e-12)


def test_with_the_missing_pair_it_is_diffusion() -> None:
    """Transfer (1 - alpha) / (1 + alpha) = 1/3 of .5 (.5, -√.5, .5), and diffusion is doubled."""
    spectral = SpectralGraph.of(mutual_graph(CHAIN, 2, gamma=1), rank=2).diffuse(SEED, 0.5)
    missing = np.array([0.5, -np.sqrt(0.5), 0.5]) / 6

    diffused = diffuse(SEED, CHAIN, DiffusionSettings(k=2, query_k=1, alpha=0.5, gamma=1))

    assert_allclose((spectral + missing) / 0.5, diffused, rtol=1e-6)


def test_items_without_a_link_have_exactly_no_score() -> None:
    """Rounding does not order them."""
    similarity = np.eye(5)
    similarity[[0, 1, 2, 3], [1, 0, 3, 2]] = 0.9
    graph = SpectralGraph.of(mutual_graph(similarity, 1, gamma=3), rank=2)

    scores = graph.diffuse(np.array([[0.0, 1.0, 0.0, 0.0, 0.0]]), 0.99)

    assert_array_equal(scores[0, 2:], [0, 0, 0])
    assert (scores[0, :2] > 0.1).all()
