"""The choice of a cosine's weight, on pools worked by hand."""

import numpy as np
import pytest

from benchmarks.runs.cosine_weight import MatchedPools, best_weight, choosing_half

# The answers of queries 0 and 1 are nearest, but the matcher prefers the other item; that of
# query 2 is second, and the matcher prefers it.
POOLS = MatchedPools(
    own_logits=np.array([[0.0, 2.0], [0.0, 5.0], [0.0, 1.0]]),
    cosines=np.array([[0.5, 0.4], [0.5, 0.4], [0.5, 0.49]]),
    are_answers=np.array([[True, False], [True, False], [False, True]]),
    families=("a", "b", "c"),
)


@pytest.mark.parametrize(
    ("weight", "hits"),
    [
        (0, [False, False, True]),
        (24, [True, False, True]),
        (60, [True, True, True]),
        (400, [True, True, False]),
    ],
)
def test_first_is_the_highest_sum_of_logit_and_weighted_cosine(
    weight: float, hits: list[bool]
) -> None:
    assert POOLS.hits(weight).tolist() == hits
    assert POOLS.retrieved_hits().tolist() == [True, True, False]


def test_the_smallest_of_the_best_weights_is_chosen_by_the_choosing_queries_alone() -> None:
    """50 is a tie of query 1: the nearer item is first."""
    everyone = np.array([True, True, True])

    assert best_weight(POOLS, everyone) == 50
    assert best_weight(POOLS, np.array([True, False, False])) == 24
    assert best_weight(POOLS, np.array([False, False, True])) == 0


def test_half_of_the_families_choose_with_all_of_their_queries() -> None:
    families = ("a", "b", "c", "d", "a", "b", "c", "d")

    choosing = choosing_half(families, seed=3)

    assert choosing.sum() == 4
    assert choosing[:4].tolist() == choosing[4:].tolist()
    drawn = {tuple(choosing_half(families, seed).tolist()) for seed in range(8)}
    assert len(drawn) > 1
