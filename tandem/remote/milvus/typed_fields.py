"""Defines the attributes that have a typed field in a collection, where Milvus filters by them.

Milvus 2.3 has no nulls, so each type has a value for "no such attribute"; texts begin with a mark,
so that an empty one is a value too.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pymilvus import CollectionSchema, DataType

from tandem.chassis.settings import SettingsError
from tandem.contract.filtering.attributes import MAX_TEXT_BYTES, MAX_TEXTS_COUNT, Attributes
from tandem.errors import AttributeInvalid

MARK = "="
"""Begins each stored text."""


class FieldType(enum.Enum):
    """Says what values an attribute has."""

    TEXT = "text"
    NUMBER = "number"
    """Integers and reals alike, as filters compare them."""
    FLAG = "flag"
    TEXTS = "texts"
    """A list of texts, or one text."""


# Milvus' names have no other characters.
_DECLARED = re.compile(rf"([A-Za-z0-9_]{{1,64}}):({'|'.join(each.value for each in FieldType)})")
_TEXT = {"max_length": len(MARK) + MAX_TEXT_BYTES}
_COLUMNS: Mapping[FieldType, Mapping[str, object]] = {
    FieldType.TEXT: {"datatype": DataType.VARCHAR, **_TEXT},
    FieldType.NUMBER: {"datatype": DataType.DOUBLE},
    FieldType.FLAG: {"datatype": DataType.INT8},
    FieldType.TEXTS: {
        "datatype": DataType.ARRAY,
        "element_type": DataType.VARCHAR,
        "max_capacity": 1 + MAX_TEXTS_COUNT,
        **_TEXT,
    },
}
_ABSENT: Mapping[FieldType, object] = {
    FieldType.TEXT: "",
    FieldType.NUMBER: -math.inf,
    FieldType.FLAG: -1,
    FieldType.TEXTS: (),
}


@dataclass(frozen=True, slots=True)
class TypedField:
    """Names an attribute and its type."""

    name: str
    type: FieldType

    def __str__(self) -> str:
        return f"{self.name}:{self.type.value}"

    @property
    def column(self) -> str:
        """Returns the name of the field in a collection."""
        return f"attribute_{self.name}"

    def add_to(self, schema: CollectionSchema) -> None:
        """Adds the field to the schema of a collection."""
        schema.add_field(self.column, **_COLUMNS[self.type])

    def stored(self, attributes: Attributes) -> object:
        """Returns the field's value in a row; raises AttributeInvalid for one of another type."""
        if (value := attributes.get(self.name)) is None:
            return _ABSENT[self.type]
        match self.type, value:
            case FieldType.TEXT, str():
                return MARK + value
            case FieldType.FLAG, bool():
                return int(value)
            case FieldType.NUMBER, int() | float() if is_number(value):
                return float(value)
            case FieldType.TEXTS, str():
                return ["", MARK + value]
            case FieldType.TEXTS, tuple():
                return ["", *(MARK + text for text in value)]
        raise AttributeInvalid(why=f"{self.name} is not what the index's field {self} can have")


def is_number(value: object) -> bool:
    """Returns whether a 64-bit float holds the value, which is no flag."""
    return isinstance(value, int | float) and type(value) is not bool and float(value) == value


def typed_fields(declared: Sequence[str]) -> tuple[TypedField, ...]:
    """Returns the fields of texts such as "year:number"; raises SettingsError."""
    matches = [_DECLARED.fullmatch(text) for text in declared]
    fields = [TypedField(match[1], FieldType(match[2])) for match in matches if match]
    if len({field.name for field in fields}) != len(declared):
        types = ", ".join(each.value for each in FieldType)
        raise SettingsError(
            f"fields {','.join(declared)}: give NAME:TYPE, each name once and of a-z, A-Z, 0-9 and "
            f"'_', with a type of {types}"
        )
    return tuple(fields)
