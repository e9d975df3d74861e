"""Query expansion by hand, next to what the authors' programs would give."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tandem.neighbours.neighbour_lists import Scores
from tandem.neighbours.neighbour_weights import (
    WeightsOf,
    decayed_weights,
    equal_weights,
    power_weights,
)
from tandem.neighbours.query_expansion import expand_queries

QUERY = np.array([[1.0, 0.0]])
# Similarities to the query: 0, .8, .6; so the nearest are 1 and 2.
ITEMS = np.array([[0.0, 1.0], [0.8, 0.6], [0.6, 0.8]])


def _unit(x: float, y: float) -> Scores:
    return np.array([[x, y]]) / np.hypot(x, y)


@pytest.mark.parametrize(
    ("weights_of", "expected"),
    [
        # (1, 0) + (.8, .6) + (.6, .8)
        (equal_weights, _unit(2.4, 1.4)),
        # (1, 0) + (.8, .6) + .5 (.6, .8)
        (decayed_weights, _unit(2.1, 1.0)),
        # (1, 0) + .64 (.8, .6) + .36 (.6, .8)
        (power_weights(2), _unit(1.728, 0.672)),
        (power_weights(0), _unit(2.4, 1.4)),
    ],
)
def test_two_neighbours_by_hand(weights_of: WeightsOf, expected: Scores) -> None:
    assert_allclose(expand_queries(QUERY, ITEMS, 2, weights_of), expected)


def test_decay_needs_the_neighbours_in_order() -> None:
    """The published code's neighbours come from a partition; reversed, the weights are swapped."""
    swapped = _unit(1 + 0.4 + 0.6, 0.3 + 0.8)

    assert not np.allclose(expand_queries(QUERY, ITEMS, 2, decayed_weights), swapped)


def test_negative_similarities_weigh_nothing() -> None:
    """The published code has (-.6)^3 = -.216 here, and NaN for an alpha of 2.5."""
    items = np.array([[-0.6, 0.8], [-0.8, 0.6]])

    assert_allclose(expand_queries(QUERY, items, 1, power_weights(3)), QUERY)
    assert_allclose(expand_queries(QUERY, items, 2, power_weights(2.5)), QUERY)
    published = QUERY - 0.216 * items[:1]
    assert not np.allclose(published / np.linalg.norm(published), QUERY)


def test_no_neighbours_leave_the_query() -> None:
    for weights_of in (equal_weights, decayed_weights, power_weights(3)):
        assert_array_equal(expand_queries(QUERY, ITEMS, 0, weights_of), QUERY)


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
