"""What an item's attributes must be, for a search to find it (`tandem.v1.Filter`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of these hold; none given holds always."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of these holds; none given never does."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """This does not hold."""

    negated: Filter


@dataclass(frozen=True, slots=True)
class OneOf:
    """The attribute is one of the values, or a list with one of them in it."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class InRange:
    """The attribute is a number between the bounds; None is no bound."""

    name: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The attribute is a text with this prefix, or a list with such a text in it."""

    name: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The item has the attribute, of whatever type."""

    name: str


Filter: TypeAlias = AllOf | AnyOf | Not | OneOf | InRange | StartsWith | Exists
