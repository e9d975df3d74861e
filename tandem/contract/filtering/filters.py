"""Defines filters on the attributes of items (`tandem.v1.Filter`).

Combine filters with `&`, `|` and `~`: `OneOf("style", ("noto",)) & ~Exists("hidden")`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, cast

from typing_extensions import assert_never

from tandem.contract.filtering.attributes import (
    Attributes,
    AttributeValue,
    name_fault,
    text_fault,
    value_fault,
)
from tandem.errors import FilterInvalid

Value: TypeAlias = str | int | float | bool

MAX_CONDITION_COUNT = 64
MAX_DEPTH = 8
MAX_VALUE_COUNT = 1000
MAX_FILTER_VALUE_COUNT = 10_000
"""The limit for all conditions together."""
MAX_FILTER_BYTES = 1024 * 1024
"""The limit of the message's size: 64 conditions of 16 values of the longest texts."""


class _Operators:
    """The operators `&`, `|` and `~`; a chain of one operator stays one level deep."""

    __slots__ = ()

    def __and__(self, other: Filter) -> AllOf:
        return AllOf((*_parts(self, AllOf), *_parts(other, AllOf)))

    def __or__(self, other: Filter) -> AnyOf:
        return AnyOf((*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __invert__(self) -> Filter:
        return self.negated if isinstance(self, Not) else Not(cast("Filter", self))

    def __bool__(self) -> NoReturn:
        # Python's `a and b` is b, which would silently drop a condition.
        raise TypeError("a filter is neither true nor false; write & for and, | for or, ~ for not")


@dataclass(frozen=True, slots=True)
class AllOf(_Operators):
    """Matches if all of these match; an empty one matches always."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(_Operators):
    """Matches if at least one of these matches; an empty one never does."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not(_Operators):
    """Matches if this does not."""

    negated: Filter


class _OfTypedValues(_Operators):
    """Equality that tells 1, 1.0 and True apart, as filters do and Python does not.

    Filters are keys, of merged searches and of cached masks.
    """

    __slots__ = ()

    def _identity(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _OfTypedValues) or type(self) is not type(other):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


@dataclass(frozen=True, slots=True, eq=False)
class OneOf(_OfTypedValues):
    """Matches an attribute that is one of the values, or a list that contains one."""

    name: str
    values: tuple[Value, ...]

    def _identity(self) -> tuple[object, ...]:
        return (self.name, *map(_typed, self.values))


@dataclass(frozen=True, slots=True, eq=False)
class InRange(_OfTypedValues):
    """Matches a number between the bounds; None for no bound."""

    name: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def _identity(self) -> tuple[object, ...]:
        bounds = (self.at_least, self.above, self.at_most, self.below)
        # A range treats integers and reals alike; flags are neither, and are refused.
        return (self.name, *((isinstance(bound, bool), bound) for bound in bounds))


@dataclass(frozen=True, slots=True)
class StartsWith(_Operators):
    """Matches a text with this prefix, or a list that contains one."""

    name: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Exists(_Operators):
    """Matches an item with the attribute, of any type."""

    name: str


Filter: TypeAlias = AllOf | AnyOf | Not | OneOf | InRange | StartsWith | Exists


def check_filter(tree: Filter) -> None:
    """Raises FilterInvalid if the filter is too large, or has a bad name, value or bound.

    Named conditions and empty groups count as conditions; a single condition is 1 deep.
    """
    if _count_conditions(tree, 1) > MAX_CONDITION_COUNT:
        raise FilterInvalid(why=f"it has over {MAX_CONDITION_COUNT} conditions; send fewer")
    check_filter_value_count(_count_values(tree))


def check_filter_value_count(count: int) -> None:
    """Raises FilterInvalid if the conditions have too many values together."""
    if count > MAX_FILTER_VALUE_COUNT:
        raise FilterInvalid(
            why=f"it has {count:,} values in all; send at most {MAX_FILTER_VALUE_COUNT:,}"
        )


def check_value_count(name: str, count: int) -> None:
    """Raises FilterInvalid if a condition has too many values."""
    if count > MAX_VALUE_COUNT:
        raise FilterInvalid(
            why=f"{name[:80]!a} has {count:,} values; send at most {MAX_VALUE_COUNT:,}"
        )


def holds(tree: Filter, attributes: Attributes) -> bool:
    """Returns whether an item with these attributes matches.

    This is the reference implementation; tests hold index_svc's columns equal to it.
    """
    match tree:
        case AllOf(filters):
            return all(holds(each, attributes) for each in filters)
        case AnyOf(filters):
            return any(holds(each, attributes) for each in filters)
        case Not(negated):
            return not holds(negated, attributes)
        case Exists(name):
            return name in attributes
        case OneOf() | InRange() | StartsWith():
            if tree.name not in attributes:
                return False
            return any(_holds_for(tree, value) for value in _words(attributes[tree.name]))
        case _:
            assert_never(tree)


def _typed(value: Value) -> tuple[type, object]:
    """Returns a key that two values share only if no filter can tell them apart."""
    # As text, a float keeps the sign of zero, and NaN, which is refused, equals itself.
    return (type(value), repr(value) if isinstance(value, float) else value)


def _parts(tree: _Operators, group: type[AllOf] | type[AnyOf]) -> tuple[Filter, ...]:
    if isinstance(tree, group):
        return tree.filters
    return (cast("Filter", tree),)  # The classes with the operators are those of Filter.


def _words(value: AttributeValue) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _holds_for(condition: OneOf | InRange | StartsWith, value: Value) -> bool:
    match condition:
        case OneOf(_, values):
            return any(_kind(value) is _kind(wanted) and value == wanted for wanted in values)
        case InRange(_, at_least, above, at_most, below):
            # Python compares an int with a float by their exact values.
            return (
                not isinstance(value, str | bool)
                and (at_least is None or value >= at_least)
                and (above is None or value > above)
                and (at_most is None or value <= at_most)
                and (below is None or value < below)
            )
        case StartsWith(_, prefix):
            return isinstance(value, str) and value.startswith(prefix)
        case _:
            assert_never(condition)


def _kind(value: Value) -> type:
    # In Python True equals 1; here only integers and reals compare as numbers.
    return float if type(value) is int else type(value)


def _count_conditions(tree: Filter, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise FilterInvalid(why=f"it is nested over {MAX_DEPTH} deep; send a flatter one")
    match tree:
        case AllOf(filters) | AnyOf(filters):
            # Each counts at least one, so that a far too long list is not scanned.
            if len(filters) > MAX_CONDITION_COUNT:
                return len(filters)
            return max(1, sum(_count_conditions(each, depth + 1) for each in filters))
        case Not(negated):
            return _count_conditions(negated, depth + 1)
        case OneOf() | InRange() | StartsWith() | Exists():
            fault = name_fault(tree.name) or _condition_fault(tree)
            if fault is not None:
                raise FilterInvalid(why=fault)
            return 1
        case _:
            assert_never(tree)


def _count_values(tree: Filter) -> int:
    match tree:
        case AllOf(filters) | AnyOf(filters):
            return sum(map(_count_values, filters))
        case Not(negated):
            return _count_values(negated)
        case OneOf(_, values):
            return len(values)
        case _:
            return 0


def _condition_fault(condition: OneOf | InRange | StartsWith | Exists) -> str | None:
    match condition:
        case OneOf(name, values):
            check_value_count(name, len(values))
            return next(filter(None, (value_fault(name, value) for value in values)), None)
        case InRange(name, at_least, above, at_most, below):
            bounds = [bound for bound in (at_least, above, at_most, below) if bound is not None]
            if not bounds:
                return f"{name} has a range without bounds; send at least one"
            return next(filter(None, (_bound_fault(name, bound) for bound in bounds)), None)
        case StartsWith(name, prefix):
            return text_fault(name, prefix)
        case Exists():
            return None
        case _:
            assert_never(condition)


def _bound_fault(name: str, bound: float) -> str | None:
    if isinstance(bound, bool):
        return f"{name} has a bound that is a flag; send a number"
    try:
        is_held = float(bound) == bound and math.isfinite(bound)
    except OverflowError:
        is_held = False
    # Bounds are 64-bit floats on the wire, and a rounded one would be another bound.
    return None if is_held else f"{name} has a bound that is not a finite 64-bit float; send one"
