"""Fusion by hand, compared with what the authors' code or first version would give."""

import numpy as np
from numpy.testing import assert_allclose

from tandem.lab.evaluation.offline_report import add, norm_add

# One query's pool of three, one similarity below zero.
SIMILARITY = np.array([[0.6, 0.2, -0.2]])
PROBABILITY = np.array([[0.1, 0.9, 0.5]])


def test_add_by_hand() -> None:
    """.25 of the similarity and .75 of the probability: .15 + .075, .05 + .675, -.05 + .375."""
    assert_allclose(add(SIMILARITY, PROBABILITY, 0.25), [[0.225, 0.725, 0.325]])


def test_norm_add_by_hand() -> None:
    """Similarities spread to 1, .5, 0 and probabilities to 0, 1, .5; then .25 and .75 of them."""
    assert_allclose(norm_add(SIMILARITY, PROBABILITY, 0.25), [[0.25, 0.875, 0.375]])


def test_every_query_is_normalised_within_its_own_pool() -> None:
    """The authors' code fuses only a fifth of the text queries (Geigle et al. 2022, Table 9)."""
    twice = norm_add(np.vstack([SIMILARITY, SIMILARITY - 5]), np.vstack([PROBABILITY] * 2), 0.5)

    assert_allclose(twice[0], twice[1])


def test_a_pool_of_equals_gets_the_middle() -> None:
    """0/0 is defined: neither NaN nor a warning."""
    flat = np.full((1, 3), 0.7)

    assert_allclose(norm_add(flat, PROBABILITY, 0.5), [[0.25, 0.75, 0.5]])
    assert_allclose(norm_add(SIMILARITY[:, :1], PROBABILITY[:, :1], 0.5), [[0.5]])
