"""Writes filters as SQL conditions on the column `attributes`, equal to `filters.holds`."""

import re
from collections.abc import Iterable, Mapping
from typing import assert_never

from psycopg.types.json import Jsonb

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
from tandem.contract.search.item_changes import ItemSelection
from tandem.errors import AttributeInvalid

_LIKE = str.maketrans("*?", "%_")
_BOUNDS = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}


def condition(tree: Filter, values: dict[str, object]) -> str:
    """Returns the condition, which is never NULL; adds its parameters to `values`."""
    match tree:
        case AllOf(filters):
            return _joined(filters, " AND ", "true", values)
        case AnyOf(filters):
            return _joined(filters, " OR ", "false", values)
        case Not(negated):
            return f"NOT {condition(negated, values)}"
        case Exists(name):
            return f"(attributes ? {_added(name, values)})"
        case OneOf(name, wanted):
            # As they stand, and texts as one of a list too; the index on attributes finds both.
            lists = [[each] for each in wanted if isinstance(each, str)]
            objects = [Jsonb(exact({name: each})) for each in (*wanted, *lists)]
            return f"(attributes @> ANY ({_added(objects, values)}::jsonb[]))"
        case InRange(name):
            bounds = {key: each for key in _BOUNDS if (each := getattr(tree, key)) is not None}
            test = " && ".join(f"@ {_BOUNDS[key]} ${key}" for key in bounds)
            return _path(name, test, bounds, values)
        case StartsWith(name, prefix):
            return _path(name, "@ starts with $prefix", {"prefix": prefix}, values)
        case _:
            assert_never(tree)


def selected(selection: ItemSelection, values: dict[str, object]) -> str:
    """Returns the condition of a selection, as `condition` does of a filter."""
    tests = [f"starts_with(id, {_added(selection.prefix, values)})"]
    if selection.id_glob:
        like = re.sub(r"([\\%_])", r"\\\1", selection.id_glob).translate(_LIKE)
        tests.append(f"id LIKE {_added(like, values)}")
        tests.append(f"starts_with(id, {_added(selection.id_prefix, values)})")
    if selection.filter is not None:
        tests.append(condition(selection.filter.tree, values))
    return " AND ".join(tests)


def exact(attributes: Mapping[str, object]) -> dict[str, object]:
    """Returns attributes for jsonb, with whole reals as integers: those it compares exactly.

    Raises AttributeInvalid for a text that Postgres cannot hold.
    """
    for name, value in attributes.items():
        texts = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(each, str) and "\0" in each for each in texts):
            raise AttributeInvalid(why=f"{name} has a NUL, which Postgres cannot hold")
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in attributes.items()
    }


def _joined(filters: Iterable[Filter], word: str, empty: str, values: dict[str, object]) -> str:
    return f"({word.join([condition(each, values) for each in filters]) or empty})"


def _path(name: str, test: str, variables: Mapping[str, object], values: dict[str, object]) -> str:
    # A name has no quote; values of other types than the test's do not pass it.
    path = _added(f'$."{name}"[*] ? ({test})', values)
    own = _added(Jsonb(exact(variables)), values)
    return f"jsonb_path_exists(attributes, {path}::jsonpath, {own})"


def _added(value: object, values: dict[str, object]) -> str:
    name = f"filter_{len(values)}"
    values[name] = value
    return f"%({name})s"
