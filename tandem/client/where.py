"""Filters, written: what an item's attributes must be for a search to find it.

    where.equals("style", "noto") & where.at_least("count", 2) & ~where.exists("hidden")

A condition on an attribute that an item lacks, or has in another type, does not hold for it; its
negation does. Filters are joined by `&`, `|` and `~`. Sending one that is too large, or has a bad
name or value, raises FilterInvalid.
"""

from tandem.contract.filters import (
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
    """Holds where the attribute is the value, or a list with it in it; 3 and 3.0 are equal."""
    return OneOf(name, (value,))


def one_of(name: str, *values: Value) -> OneOf:
    """Holds where the attribute is one of the values, or a list with one of them in it."""
    return OneOf(name, values)


def between(name: str, low: float, high: float) -> InRange:
    """Holds where the attribute is a number from `low` to `high`, both included."""
    return InRange(name, at_least=low, at_most=high)


def at_least(name: str, bound: float) -> InRange:
    """Holds where the attribute is a number, and this or more."""
    return InRange(name, at_least=bound)


def above(name: str, bound: float) -> InRange:
    """Holds where the attribute is a number, and more than this."""
    return InRange(name, above=bound)


def at_most(name: str, bound: float) -> InRange:
    """Holds where the attribute is a number, and this or less."""
    return InRange(name, at_most=bound)


def below(name: str, bound: float) -> InRange:
    """Holds where the attribute is a number, and less than this."""
    return InRange(name, below=bound)


def starts_with(name: str, prefix: str) -> StartsWith:
    """Holds where the attribute is a text with this prefix, or a list with such a text in it."""
    return StartsWith(name, prefix)


def exists(name: str) -> Exists:
    """Holds where the item has the attribute, of whatever type."""
    return Exists(name)


def all_of(*filters: Filter) -> AllOf:
    """Holds where all of these do; none given holds always."""
    return AllOf(filters)


def any_of(*filters: Filter) -> AnyOf:
    """Holds where one of these does; none given never does."""
    return AnyOf(filters)
