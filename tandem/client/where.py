"""Builds filters on the attributes of items.

    where.equals("style", "noto") & where.at_least("count", 2) & ~where.exists("hidden")

A condition does not match an item that lacks the attribute or has another type of it; the negated
condition does. Combine filters with `&`, `|` and `~`. Sending a filter that is too large, or has a
bad name or value, raises FilterInvalid.
"""

from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    Value,
)

__all__ = [
    "AllOf",
    "AnyOf",
    "Exists",
    "Filter",
    "InRange",
    "Not",
    "OneOf",
    "StartsWith",
    "Value",
    "above",
    "all_of",
    "any_of",
    "at_least",
    "at_most",
    "below",
    "between",
    "equals",
    "exists",
    "one_of",
    "starts_with",
]


def equals(name: str, value: Value) -> OneOf:
    """Matches the value, or a list that contains it; 3 and 3.0 are equal."""
    return OneOf(name, (value,))


def one_of(name: str, *values: Value) -> OneOf:
    """Matches one of the values, or a list that contains one."""
    return OneOf(name, values)


def between(name: str, low: float, high: float) -> InRange:
    """Matches a number from `low` to `high`, inclusive."""
    return InRange(name, at_least=low, at_most=high)


def at_least(name: str, bound: float) -> InRange:
    """Matches a number of at least `bound`."""
    return InRange(name, at_least=bound)


def above(name: str, bound: float) -> InRange:
    """Matches a number above `bound`."""
    return InRange(name, above=bound)


def at_most(name: str, bound: float) -> InRange:
    """Matches a number of at most `bound`."""
    return InRange(name, at_most=bound)


def below(name: str, bound: float) -> InRange:
    """Matches a number below `bound`."""
    return InRange(name, below=bound)


def starts_with(name: str, prefix: str) -> StartsWith:
    """Matches a text with this prefix, or a list that contains one."""
    return StartsWith(name, prefix)


def exists(name: str) -> Exists:
    """Matches an item with the attribute, of any type."""
    return Exists(name)


def all_of(*filters: Filter) -> AllOf:
    """Matches if all filters match; without filters it matches always."""
    return AllOf(filters)


def any_of(*filters: Filter) -> AnyOf:
    """Matches if at least one filter matches; without filters it never does."""
    return AnyOf(filters)
