"""Neighbour affinity by hand."""

import numpy as np
from numpy.testing import assert_allclose

from tandem.model_io.inference.neighbour_affinity import neighbour_affinity

# Shared by a and b 2 + 1, by a and c 1 + 0, by b and c 1 + 0; each with itself 4.
IMAGES = np.array([[[1, 2], [2, 1], [2, 4]]])
TEXTS = np.array([[[5, 6], [5, 7], [1, 8]]])
VALID = np.ones((1, 3), np.bool_)


def test_shares_by_hand() -> None:
    """A threshold of .8 / 32 drops none of 4/8, 3/8, 1/8 and 1/6, 1/6, 4/6.

    Text 1 of c and image 1 of a are not the same thing.
    """
    affinity = neighbour_affinity(IMAGES, TEXTS, VALID, sharpness=0.8, threshold_nodes=32)

    assert_allclose(affinity[0], [[0.5, 0.375, 0.125], [0.375, 0.5, 0.125], [1 / 6, 1 / 6, 2 / 3]])


def test_small_shares_are_dropped_by_the_number_of_nodes() -> None:
    """.8 / 3 drops 1/8 and 1/6, and what is left is normalised again."""
    affinity = neighbour_affinity(IMAGES, TEXTS, VALID, sharpness=0.8)

    assert_allclose(affinity[0], [[4 / 7, 3 / 7, 0.0], [3 / 7, 4 / 7, 0.0], [0.0, 0.0, 1.0]])


def test_a_node_that_is_not_valid_changes_nothing() -> None:
    images = np.concatenate([IMAGES, IMAGES[:, :1]], axis=1)
    texts = np.concatenate([TEXTS, TEXTS[:, :1]], axis=1)
    valid = np.array([[True, True, True, False]])

    affinity = neighbour_affinity(images, texts, valid, 0.8)[0]

    assert_allclose(affinity[:3, :3], neighbour_affinity(IMAGES, TEXTS, VALID, 0.8)[0])
    assert not affinity[3].any()
    assert not affinity[:, 3].any()
    all_valid = neighbour_affinity(images, texts, np.ones((1, 4), np.bool_), 0.8)[0]
    assert not np.allclose(all_valid[:3, :3], affinity[:3, :3])
