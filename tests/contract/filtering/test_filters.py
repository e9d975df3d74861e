"""What a filter means, by hand, and which filters are refused."""

import pytest

from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    check_filter,
    holds,
)
from tandem.errors import FilterInvalid

ITEM: Attributes = {
    "style": "noto",
    "count": 3,
    "weight": 3.0,
    "big": 2**53 + 1,
    "hidden": True,
    "tags": ("red", "round"),
    "none": (),
}


MATCHING: list[Filter] = [
    OneOf("style", ("noto",)),
    OneOf("style", ("blob", "noto")),
    OneOf("count", (3.0,)),
    OneOf("weight", (3,)),
    OneOf("big", (2**53 + 1,)),
    OneOf("tags", ("round",)),
    InRange("count", at_least=3, at_most=3),
    InRange("weight", above=2.5, below=3.5),
    InRange("big", above=2.0**53),
    StartsWith("style", "no"),
    StartsWith("tags", "ro"),
    Exists("none"),
    AllOf(()),
    AnyOf((Exists("missing"), Exists("count"))),
    Not(AnyOf(())),
]
OTHERS: list[Filter] = [
    OneOf("style", ("Noto",)),
    OneOf("style", ()),
    OneOf("hidden", (1,)),
    OneOf("count", (True,)),
    OneOf("big", (2**53,)),
    OneOf("tags", ("red round",)),
    InRange("count", above=3),
    InRange("hidden", at_least=0),
    InRange("tags", at_least=0),
    StartsWith("style", "oto"),
    StartsWith("count", ""),
    Exists("missing"),
    AnyOf(()),
]


def test_filters_match_what_they_say() -> None:
    """And their negations match the rest."""
    trees = [*MATCHING, *OTHERS]

    assert [tree for tree in trees if holds(tree, ITEM)] == MATCHING
    assert [tree for tree in trees if holds(Not(tree), ITEM)] == OTHERS


def nested(depth: int) -> Filter:
    """Returns a filter so deep."""
    tree: Filter = Exists("a")
    for _ in range(depth - 1):
        tree = Not(tree)
    return tree


def test_the_largest_filters_are_accepted() -> None:
    """64 conditions, 8 deep, 1,000 values, 1,024 bytes."""
    for tree in (
        AllOf((Exists("a"),) * 64),
        AnyOf((AllOf(()),) * 64),
        nested(8),
        OneOf("a", ("x",) * 1000),
        OneOf("a", ()),
        OneOf("a", ("x" * 1024, 2**63 - 1, -(2**63), 1e308, True)),
        StartsWith("a", "ä" * 512),
        Exists("Aa0_.-" + 58 * "x"),
    ):
        check_filter(tree)


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (AllOf((Exists("a"),) * 65), "over 64 conditions"),
        (AllOf((AllOf(()),) * 65), "over 64 conditions"),
        (nested(9), "over 8 deep"),
        (OneOf("a", ("x",) * 1001), "1,001 values"),
        (OneOf("a", ("x" * 1025,)), "1,025 bytes"),
        (OneOf("a", ("\ud800",)), "UTF-8"),
        (OneOf("a", (float("nan"),)), "nan"),
        (OneOf("a", (2**63,)), "64 bits"),
        (InRange("a"), "without bounds"),
        (InRange("a", above=2**53 + 1), "64-bit float"),
        (InRange("a", above=True), "flag"),
        (Exists("a\n"), "not a name"),
    ],
)
def test_an_invalid_filter_is_refused(tree: Filter, why: str) -> None:
    with pytest.raises(FilterInvalid, match=why):
        check_filter(tree)


def test_operators_write_trees_that_stay_flat() -> None:
    """65 conditions in a row are not 65 deep, and two negations are none."""
    a, b, c = Exists("a"), Exists("b"), Exists("c")

    assert a & b & c == AllOf((a, b, c))
    assert a & (b & c) == AllOf((a, b, c))
    assert a | b | c == AnyOf((a, b, c))
    assert a & b | c == AnyOf((AllOf((a, b)), c))
    assert ~a == Not(a)
    assert ~~a == a
    assert ~(a | b) & c == AllOf((Not(AnyOf((a, b))), c))


def test_pythons_own_and_is_refused() -> None:
    """It would give the second filter alone, and the search would find what it should not."""
    with pytest.raises(TypeError, match="write & for and"):
        Exists("a") and Exists("b")
    with pytest.raises(TypeError, match="write & for and"):
        not Exists("a")


DIFFERENT_VALUES = [
    0, 1, 0.0, -0.0, 1.0, True, False, 2**53, 2.0**53, 2**53 + 1, 2**63 - 1, 2.0**63, "1", "True"
]  # fmt: skip


def wrapped(leaf: Filter) -> list[Filter]:
    """Returns trees with the condition somewhere in them."""
    return [leaf, Not(leaf), AllOf((Exists("y"), leaf)), AnyOf((Not(AllOf((leaf,))),))]


def test_filters_are_equal_only_if_they_match_the_same_items() -> None:
    """1, 1.0 and True are one key in Python: two searches of a batch got one answer."""
    leaves = [
        *(OneOf("x", (value,)) for value in DIFFERENT_VALUES),  # type: ignore[arg-type]
        *(OneOf("x", (1, value)) for value in DIFFERENT_VALUES),  # type: ignore[arg-type]
        InRange("x", at_least=1),
        InRange("x", at_least=True),
        InRange("x", at_least=2.0**53),
        InRange("x", at_least=2**53 + 1),
        OneOf("x", ()),
        OneOf("y", (1,)),
        InRange("x", above=1),
        InRange("x", at_most=1),
        InRange("x", below=1),
        StartsWith("x", "1"),
        Exists("x"),
    ]
    trees = [tree for leaf in leaves for tree in wrapped(leaf)]  # type: ignore[arg-type]

    assert len(set(trees)) == len(trees)
    for tree in trees:
        assert sum(tree == other for other in trees) == 1
