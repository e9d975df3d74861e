"""Writes filters as expressions of Milvus, as far as the typed fields of a collection reach.

An expression says what `holds` says (tandem/contract/filtering/filters.py); a test compares them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

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
from tandem.remote.milvus.typed_fields import MARK, FieldType, TypedField, is_number

_ALWAYS, _NEVER = "modality >= 0", "modality < 0"
_EXISTS: Mapping[FieldType, str] = {
    FieldType.TEXT: '{} != ""',
    FieldType.NUMBER: f"{{}} >= {-sys.float_info.max!r}",
    FieldType.FLAG: "{} >= 0",
    FieldType.TEXTS: 'array_contains({}, "")',
}


def pushed_down(tree: Filter | None, fields: Mapping[str, TypedField]) -> tuple[str, Filter | None]:
    """Returns what Milvus evaluates, empty for nothing, and what is left for us."""
    if tree is None:
        return "", None
    parts = tree.filters if isinstance(tree, AllOf) else (tree,)
    texts = [expression(part, fields) for part in parts]
    rest = tuple(part for part, text in zip(parts, texts, strict=True) if text is None)
    return _joined(" and ", filter(None, texts)), AllOf(rest) if rest else None


def expression(tree: Filter, fields: Mapping[str, TypedField]) -> str | None:
    """Returns the expression of a filter; None if it asks for more than typed fields."""
    match tree:
        case AllOf(filters) | AnyOf(filters):
            word, empty = (" and ", _ALWAYS) if isinstance(tree, AllOf) else (" or ", _NEVER)
            texts = [expression(each, fields) for each in filters]
            return None if None in texts else _joined(word, filter(None, texts)) or empty
        case Not(negated):
            text = expression(negated, fields)
            return None if text is None else f"not ({text})"
        case _:
            field = fields.get(tree.name)
            return None if field is None else _condition(tree, field)


def quoted(text: str) -> str:
    """Returns the text as Milvus' expressions write it."""
    return json.dumps(text, ensure_ascii=False)


def any_of_ids(item_ids: Iterable[str]) -> str:
    """Returns the expression that finds the items."""
    return f"item_id in [{', '.join(map(quoted, item_ids))}]"


def _joined(word: str, texts: Iterable[str]) -> str:
    return word.join(f"({text})" for text in texts)


def _condition(condition: OneOf | InRange | StartsWith | Exists, field: TypedField) -> str | None:
    """Returns the expression of one condition; a value of another type matches nothing."""
    exists = _EXISTS[field.type].format(field.column)
    match field.type, condition:
        case _, Exists():
            return exists
        case _, OneOf(_, values):
            if not (literals := ", ".join(_literals(field.type, values))):
                return _NEVER
            if field.type is FieldType.TEXTS:
                return f"array_contains_any({field.column}, [{literals}])"
            return f"{field.column} in [{literals}]"
        case FieldType.NUMBER, InRange(_, at_least, above, at_most, below):
            bounds = ((">=", at_least), (">", above), ("<=", at_most), ("<", below))
            given = [f"{field.column} {sign} {float(x)!r}" for sign, x in bounds if x is not None]
            return " and ".join([exists, *given])
        case FieldType.TEXT, StartsWith(_, prefix):
            # Not with "like", where % and _ stand for other texts.
            first, after = quoted(MARK + prefix), quoted(_after(MARK + prefix))
            return f"{field.column} >= {first} and {field.column} < {after}"
        case FieldType.TEXTS, StartsWith():
            return None  # Milvus compares a list's texts whole.
    return _NEVER


def _literals(of: FieldType, values: Sequence[Value]) -> list[str]:
    match of:
        case FieldType.NUMBER:
            return [repr(float(value)) for value in values if is_number(value)]
        case FieldType.FLAG:
            return [str(int(value)) for value in values if isinstance(value, bool)]
        case _:
            return [quoted(MARK + value) for value in values if isinstance(value, str)]


def _after(text: str) -> str:
    """Returns the first text, in byte order, after all that begin with this one."""
    kept = text.rstrip("\U0010ffff")  # the mark is none of those
    last = ord(kept[-1])
    return kept[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
