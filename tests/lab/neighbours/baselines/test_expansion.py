"""Expansion of queries and items by hand, next to what the authors' programs would give."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tandem.lab.neighbours.baselines.expansion import (
    WeightsOf,
    augment_items,
    decayed_weights,
    equal_weights,
    expand_in_sequence,
    expand_jointly,
    expand_queries,
    power_weights,
)
from tandem.lab.neighbours.lists.neighbour_lists import Scores

QUERY = np.array([[1.0, 0.0]])
# Similarities to the query: 0, .8, .6; so the nearest are 1 and 2.
ITEMS = np.array([[0.0, 1.0], [0.8, 0.6], [0.6, 0.8]])
# Similarities: a to b .96, a to c .6, b to c .8.
ABC = np.array([[0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])


def _unit(x: float, y: float) -> Scores:
    return np.array([[x, y]]) / np.hypot(x, y)


@pytest.mark.parametrize(
    ("weights_of", "expected"),
    [
        # (1, 0) + (.8, .6) + (.6, .8)
        (equal_weights, _unit(2.4, 1.4)),
        # (1, 0) + (.8, .6) + .5 (.6, .8); the published code's neighbours come from a partition,
        # and swapped they would give (2.0, 1.1)
        (decayed_weights, _unit(2.1, 1.0)),
        # (1, 0) + .64 (.8, .6) + .36 (.6, .8)
        (power_weights(2), _unit(1.728, 0.672)),
    ],
)
def test_two_neighbours_of_a_query_by_hand(weights_of: WeightsOf, expected: Scores) -> None:
    assert_allclose(expand_queries(QUERY, ITEMS, 2, weights_of), expected)


def test_negative_similarities_weigh_nothing() -> None:
    """The published code has (-.6)^3 = -.216 here, and NaN for an alpha of 2.5."""
    items = np.array([[-0.6, 0.8], [-0.8, 0.6]])

    assert_allclose(expand_queries(QUERY, items, 1, power_weights(3)), QUERY)
    assert_allclose(expand_queries(QUERY, items, 2, power_weights(2.5)), QUERY)
    published = QUERY - 0.216 * items[:1]
    assert not np.allclose(published / np.linalg.norm(published), QUERY)


def test_opposites_add_up_to_nothing() -> None:
    assert_array_equal(expand_queries(QUERY, -QUERY, 1, equal_weights), [[0.0, 0.0]])


@pytest.mark.parametrize("weights_of", [equal_weights, decayed_weights, power_weights(3)])
def test_one_neighbour_keeps_the_first_item(weights_of: WeightsOf) -> None:
    """As the R@1 of LeaPRR's Table 1 are, to the digit; five neighbours do not keep it."""
    rng = np.random.default_rng(5)
    drawn = rng.normal(size=(300, 8))
    embeddings = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    queries, items = embeddings[:100], embeddings[100:]
    first = (queries @ items.T).argmax(axis=1)

    of_one = (expand_queries(queries, items, 1, weights_of) @ items.T).argmax(axis=1)
    of_five = (expand_queries(queries, items, 5, weights_of) @ items.T).argmax(axis=1)

    assert_array_equal(of_one, first)
    assert (of_five != first).any()


def test_items_with_one_neighbour_by_hand() -> None:
    """A and b are averaged with each other, c with b: (0, 1) + (.6, .8), of length √3.6."""
    diagonal = np.sqrt([0.5, 0.5])

    augmented = augment_items(ABC, 1, equal_weights)

    assert_allclose(augmented, [diagonal, diagonal, np.array([0.6, 1.8]) / np.sqrt(3.6)])


def test_items_with_two_weighted_neighbours_by_hand() -> None:
    """C's neighbours are b at .8 and a at .6: weights 1 and .5, or .64 and .36."""
    decayed = np.array([0.6 + 0.4, 1 + 0.8 + 0.3])
    powered = np.array([0.64 * 0.6 + 0.36 * 0.8, 1 + 0.64 * 0.8 + 0.36 * 0.6])

    assert_allclose(augment_items(ABC, 2, decayed_weights)[2], decayed / np.linalg.norm(decayed))
    assert_allclose(augment_items(ABC, 2, power_weights(2))[2], powered / np.linalg.norm(powered))


def test_an_item_is_averaged_with_another_even_if_none_is_similar() -> None:
    """The published code sets the similarity to itself to 0, above -.6, and averages it with it."""
    items = np.array([[1.0, 0.0], [-0.6, 0.8]])

    augmented = augment_items(items, 1, equal_weights)

    assert_allclose(augmented[0], np.array([0.4, 0.8]) / np.sqrt(0.8))
    assert not np.allclose(augmented[0], items[0])


def test_in_sequence_the_query_is_averaged_with_an_augmented_item() -> None:
    """The query at 0 degrees is averaged with a at 45 degrees: 22.5."""
    queries, items = expand_in_sequence(QUERY, ABC, 1, equal_weights)

    assert_allclose(queries, [[np.cos(np.pi / 8), np.sin(np.pi / 8)]])
    assert_allclose(items, augment_items(ABC, 1, equal_weights))


def test_jointly_the_query_is_averaged_with_what_was_there() -> None:
    """With a: (1, 0) + (.8, .6), of length √3.6; an equal query is nearer, and changes nothing."""
    queries, items = expand_jointly(QUERY, ABC, 1, equal_weights)
    doubled, _ = expand_jointly(np.concatenate([QUERY, QUERY]), ABC, 1, equal_weights)

    assert_allclose(queries, np.array([[1.8, 0.6]]) / np.sqrt(3.6))
    assert_allclose(items, augment_items(ABC, 1, equal_weights))
    assert_allclose(doubled, np.concatenate([QUERY, QUERY]))
