"""Filters as the SDK's users write them."""

from tandem.client import where
from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
)

EXPRESSIONS: list[tuple[Filter, Filter]] = [
    (where.equals("style", "noto"), OneOf("style", ("noto",))),
    (where.one_of("style", "noto", "blob"), OneOf("style", ("noto", "blob"))),
    (where.between("count", 2, 5), InRange("count", at_least=2, at_most=5)),
    (where.at_least("count", 2), InRange("count", at_least=2)),
    (where.above("count", 2), InRange("count", above=2)),
    (where.at_most("count", 2), InRange("count", at_most=2)),
    (where.below("count", 2), InRange("count", below=2)),
    (where.starts_with("path", "a/"), StartsWith("path", "a/")),
    (where.exists("hidden"), Exists("hidden")),
    (where.all_of(), AllOf(())),
    (where.any_of(where.exists("a")), AnyOf((Exists("a"),))),
    (
        where.equals("style", "noto") & ~where.exists("hidden"),
        AllOf((OneOf("style", ("noto",)), Not(Exists("hidden")))),
    ),
]


def test_expressions_have_their_meaning() -> None:
    """One by one, and joined."""
    assert [written for written, _ in EXPRESSIONS] == [meant for _, meant in EXPRESSIONS]
