"""Defines the attributes that have a typed field in a collection, and filters by them.

An expression says what `holds` says (tandem/contract/filtering/filters.py); a test compares them.
Milvus 2.3 has no nulls, so each type has a value for "no such attribute".
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pymilvus import CollectionSchema, DataType

from tandem.chassis.settings import SettingsError
from tandem.contract.filtering.attributes import MAX_TEXT_BYTES, MAX_TEXTS_COUNT, Attributes
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
from tandem.errors import AttributeInvalid

_ALWAYS, _NEVER = "modality >= 0", "modality < 0"
_BOUNDS = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}
_MARK = "="
"""Begins each stored text, so that an empty one is a value too."""
_TEXT = {"max_length": len(_MARK) + MAX_TEXT_BYTES}


def _text(value: object) -> str | None:
    return _MARK + value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    # Integers and reals alike, as filters compare them, if a 64-bit float holds them.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if float(value) == value else None


def _flag(value: object) -> int | None:
    return int(value) if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class _Type:
    stored: Callable[[object], object]
    """Returns a value as a row and an expression have it, None for one of another type."""
    absent: object
    exists: str
    """The expression of a field that has a value."""
    column: Mapping[str, object]


_TEXTS = "texts"
_TYPES = {
    "text": _Type(_text, "", '{} != ""', {"datatype": DataType.VARCHAR, **_TEXT}),
    "number": _Type(
        _number, -math.inf, f"{{}} >= {-sys.float_info.max!r}", {"datatype": DataType.DOUBLE}
    ),
    "flag": _Type(_flag, -1, "{} >= 0", {"datatype": DataType.INT8}),
    # A list of texts, or one text; one that is there has an unmarked text too.
    _TEXTS: _Type(
        _text,
        (),
        'array_contains({}, "")',
        {
            "datatype": DataType.ARRAY,
            "element_type": DataType.VARCHAR,
            "max_capacity": 1 + MAX_TEXTS_COUNT,
            **_TEXT,
        },
    ),
}
# Milvus' names have no other characters.
_DECLARED = re.compile(rf"([A-Za-z0-9_]{{1,64}}):({'|'.join(_TYPES)})")


@dataclass(frozen=True, slots=True)
class TypedField:
    """Names an attribute and its type."""

    name: str
    type_name: str

    def __str__(self) -> str:
        return f"{self.name}:{self.type_name}"

    @property
    def column(self) -> str:
        """Returns the name of the field in a collection."""
        return f"attribute_{self.name}"

    def add_to(self, schema: CollectionSchema) -> None:
        """Adds the field to the schema of a collection."""
        schema.add_field(self.column, **_TYPES[self.type_name].column)

    def stored(self, attributes: Attributes) -> object:
        """Returns the field's value in a row; raises AttributeInvalid for one of another type."""
        of = _TYPES[self.type_name]
        if (value := attributes.get(self.name)) is None:
            return of.absent
        is_list = self.type_name == _TEXTS
        values = value if is_list and isinstance(value, tuple) else (value,)
        stored = [of.stored(each) for each in values]
        if None in stored:
            raise AttributeInvalid(why=f"{self.name} is not what the index's field {self} can have")
        return ["", *stored] if is_list else stored[0]

    def condition(self, condition: OneOf | InRange | StartsWith | Exists) -> str | None:
        """Returns the expression, in which a value of another type matches nothing."""
        of, column = _TYPES[self.type_name], self.column
        exists = of.exists.format(column)
        match condition:
            case Exists():
                return exists
            case OneOf(_, values):
                stored = [each for each in map(of.stored, values) if each is not None]
                if not stored:
                    return _NEVER
                if self.type_name == _TEXTS:
                    return f"array_contains_any({column}, {literal(stored)})"
                return f"{column} in {literal(stored)}"
            case InRange() if self.type_name == "number":
                bounds = [(sign, getattr(condition, name)) for name, sign in _BOUNDS.items()]
                given = [f"{column} {sign} {float(x)!r}" for sign, x in bounds if x is not None]
                return " and ".join([exists, *given])
            case StartsWith(_, prefix) if self.type_name == "text":
                # Not with "like", where % and _ stand for other texts.
                first, after = literal(_MARK + prefix), literal(_after(_MARK + prefix))
                return f"{column} >= {first} and {column} < {after}"
            case StartsWith() if self.type_name == _TEXTS:
                return None  # Milvus compares a list's texts whole.
        return _NEVER


def typed_fields(declared: Sequence[str]) -> Mapping[str, TypedField]:
    """Returns the fields of texts such as "year:number" by name; raises SettingsError."""
    matches = [_DECLARED.fullmatch(text) for text in declared]
    fields = {match[1]: TypedField(match[1], match[2]) for match in matches if match}
    if len(fields) != len(declared):
        raise SettingsError(
            f"fields {','.join(declared)}: give NAME:TYPE, each name once and of a-z, A-Z, 0-9 and "
            f"'_', with a type of {', '.join(_TYPES)}"
        )
    return fields


def pushed_down(tree: Filter | None, fields: Mapping[str, TypedField]) -> tuple[str, Filter | None]:
    """Returns what Milvus evaluates, empty for nothing, and what is left for us."""
    if tree is None or not fields:
        return "", tree
    parts = tree.filters if isinstance(tree, AllOf) else (tree,)
    texts = {part: _expression(part, fields) for part in parts}
    rest = tuple(part for part, text in texts.items() if text is None)
    return _joined(" and ", filter(None, texts.values())), AllOf(rest) if rest else None


def literal(value: object) -> str:
    """Returns a text, a number or a list of them as Milvus' expressions write it."""
    return json.dumps(value, ensure_ascii=False)


def _expression(tree: Filter, fields: Mapping[str, TypedField]) -> str | None:
    """Returns the expression of a filter; None if it asks for more than typed fields."""
    match tree:
        case AllOf(filters) | AnyOf(filters):
            word, empty = (" and ", _ALWAYS) if isinstance(tree, AllOf) else (" or ", _NEVER)
            texts = [_expression(each, fields) for each in filters]
            return None if None in texts else _joined(word, filter(None, texts)) or empty
        case Not(negated):
            text = _expression(negated, fields)
            return None if text is None else f"not ({text})"
        case _:
            field = fields.get(tree.name)
            return None if field is None else field.condition(tree)


def _joined(word: str, texts: Iterable[str]) -> str:
    return word.join(f"({text})" for text in texts)


def _after(text: str) -> str:
    """Returns the first text, in byte order, after all that begin with this one."""
    kept = text.rstrip("\U0010ffff")  # the mark is none of those
    last = ord(kept[-1])
    return kept[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
