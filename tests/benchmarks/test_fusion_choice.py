"""Hybrid searches of a hand-made task: the ranks, the choice of a fusion, and the paired test."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.support.fusion_choice import (
    CHOICES,
    FoundLists,
    FusionChoice,
    best_choice,
    paired_difference,
)
from benchmarks.support.keyword_task import KeywordTask, Worded
from tandem.contract.hybrid import HybridFusion

DEGREES = {"dog": 0.0, "cat": 30.0, "cup": 60.0, "car": 90.0}


def at(degrees: list[float]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Returns unit vectors at these angles."""
    return np.array(
        [[math.cos(math.radians(each)), math.sin(math.radians(each))] for each in degrees],
        dtype=np.float32,
    )


@pytest.fixture(name="lists")
def _lists() -> FoundLists:
    """Four items; the embeddings of two queries are near another item than the right one."""
    names = list(DEGREES)
    task = KeywordTask(
        "hand-made",
        names,
        at([0.0, 30.0, 88.0, 50.0]),
        at(list(DEGREES.values())),
        ["a dog", "pet", "a cup", "a car"],
        names,
        names,
    )
    return FoundLists(task, task.nearest(), task.by_words(Worded.ALL))


def test_ranks_are_of_the_first_right_item(lists: FoundLists) -> None:
    """At 88 degrees the car is nearer than the cup; at 50 two others are nearer than the car."""
    assert lists.near_ranks() == [1, 1, 2, 3]
    # No item has the word "cat".
    assert lists.word_ranks() == [1, None, 1, 1]


def test_the_constant_of_60_is_the_product(lists: FoundLists) -> None:
    """So that other constants are compared with what is served."""
    for tenths in range(1, 10):
        choice = FusionChoice(HybridFusion.RECIPROCAL_RANK, tenths / 10)
        assert lists.reciprocal_ranks(60, tenths / 10) == lists.fused_ranks(choice)


def test_the_best_choice_has_everything_right(lists: FoundLists) -> None:
    """A fusion that heeds both lists; the first of equal ones."""
    assert lists.fused_ranks(best_choice(lists.fused_ranks)) == [1, 1, 1, 1]
    assert best_choice(lambda _: [1]) == CHOICES[0]


def test_a_difference_has_an_interval_and_a_p_value() -> None:
    """Worked by hand: six queries of six that only one system answers are 2 of 64 by chance."""
    every = paired_difference([1] * 6, [None] * 6)
    none = paired_difference([1, 2, None], [1, 2, None])
    some = paired_difference([1, 1, 2, 1], [2, 1, 1, None])

    assert (every.points, every.low, every.high) == (100.0, 100.0, 100.0)
    assert every.p_value == pytest.approx(2 / 64, abs=0.01)
    assert (none.points, none.low, none.high, none.p_value) == (0.0, 0.0, 0.0, 1.0)
    # (50 + 0 - 50 + 100) / 4
    assert some.points == 25.0
    assert some.low < some.points < some.high
    with pytest.raises(ValueError, match="4 and 1 queries are not the same queries"):
        paired_difference([1] * 4, [1])
