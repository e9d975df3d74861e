"""Nearest items and orders, with ties by index."""

import numpy as np
from numpy.testing import assert_array_equal

from tandem.lab.neighbours.lists.neighbour_lists import (
    nearest_items,
    nearest_others,
    order_with_base,
)


def test_ties_are_ordered_by_index() -> None:
    assert_array_equal(nearest_items(np.array([[0.5, 0.7, 0.5, 0.7]]), 4), [[1, 3, 0, 2]])
    assert_array_equal(nearest_items(np.zeros((2, 5)), 3), [[0, 1, 2]] * 2)


def test_an_item_is_not_its_own_neighbour() -> None:
    """Not even where all others are less similar than 0."""
    similarity = np.array([[1, -0.5, -0.2], [-0.5, 1, -0.5], [-0.2, -0.5, 1]])

    assert_array_equal(nearest_others(similarity, 2), [[2, 1], [0, 2], [0, 1]])


def test_equal_scores_have_the_base_order() -> None:
    scores = np.array([[0.0, 3.0, 0.0, 0.0]])
    base = np.array([[0.1, 0.0, 0.9, 0.1]])

    assert_array_equal(order_with_base(scores, base), [[1, 2, 0, 3]])
