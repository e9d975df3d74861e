"""Database augmentation by hand, alone and with the queries."""

import numpy as np
from numpy.testing import assert_allclose

from tandem.neighbours.database_augmentation import (
    augment_items,
    expand_in_sequence,
    expand_jointly,
)
from tandem.neighbours.neighbour_weights import decayed_weights, equal_weights, power_weights

QUERY = np.array([[1.0, 0.0]])
# Similarities: a to b .96, a to c .6, b to c .8.
ITEMS = np.array([[0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])


def test_one_neighbour_by_hand() -> None:
    """A and b are averaged with each other, c with b: (0, 1) + (.6, .8), of length √3.6."""
    diagonal = np.sqrt([0.5, 0.5])

    augmented = augment_items(ITEMS, 1, equal_weights)

    assert_allclose(augmented, [diagonal, diagonal, np.array([0.6, 1.8]) / np.sqrt(3.6)])


def test_two_neighbours_with_weights_by_hand() -> None:
    """C's neighbours are b at .8 and a at .6: weights 1 and .5, or .64 and .36."""
    decayed = np.array([0.6 + 0.4, 1 + 0.8 + 0.3])
    powered = np.array([0.64 * 0.6 + 0.36 * 0.8, 1 + 0.64 * 0.8 + 0.36 * 0.6])

    assert_allclose(augment_items(ITEMS, 2, decayed_weights)[2], decayed / np.linalg.norm(decayed))
    assert_allclose(augment_items(ITEMS, 2, power_weights(2))[2], powered / np.linalg.norm(powered))


def test_an_item_is_averaged_with_another_even_if_none_is_similar() -> None:
    """The published code sets the similarity to itself to 0, above -.6, and averages it with it."""
    items = np.array([[1.0, 0.0], [-0.6, 0.8]])

    augmented = augment_items(items, 1, equal_weights)

    assert_allclose(augmented[0], np.array([0.4, 0.8]) / np.sqrt(0.8))
    assert not np.allclose(augmented[0], items[0])


def test_in_sequence_by_hand() -> None:
    """The query at 0 degrees is averaged with a at 45 degrees: 22.5."""
    queries, items = expand_in_sequence(QUERY, ITEMS, 1, equal_weights)

    assert_allclose(queries, [[np.cos(np.pi / 8), np.sin(np.pi / 8)]])
    assert_allclose(items, augment_items(ITEMS, 1, equal_weights))


def test_jointly_by_hand() -> None:
    """The query is averaged with a as it was: (1, 0) + (.8, .6), of length √3.6."""
    queries, items = expand_jointly(QUERY, ITEMS, 1, equal_weights)

    assert_allclose(queries, np.array([[1.8, 0.6]]) / np.sqrt(3.6))
    assert_allclose(items, augment_items(ITEMS, 1, equal_weights))


def test_jointly_an_equal_query_is_the_nearest() -> None:
    """In sequence it changes nothing."""
    queries, _ = expand_jointly(np.concatenate([QUERY, QUERY]), ITEMS, 1, equal_weights)

    assert_allclose(queries, np.concatenate([QUERY, QUERY]))
