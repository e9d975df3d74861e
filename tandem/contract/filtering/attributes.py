"""Defines the attributes of items, for filters."""

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

from tandem.errors import AttributeInvalid

AttributeValue: TypeAlias = str | int | float | bool | tuple[str, ...]
"""A tuple is a list of texts, such as tags."""

Attributes: TypeAlias = Mapping[str, AttributeValue]
"""Attributes by name."""

MAX_ATTRIBUTE_COUNT = 64
MAX_TEXT_BYTES = 1024
MAX_TEXTS_COUNT = 64

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_INTEGER = 2**63


def check_attributes(attributes: Attributes) -> None:
    """Raises AttributeInvalid, which names the attribute and its fault."""
    if len(attributes) > MAX_ATTRIBUTE_COUNT:
        raise AttributeInvalid(
            why=f"there are {len(attributes)}; send at most {MAX_ATTRIBUTE_COUNT}"
        )
    for name, value in attributes.items():
        fault = name_fault(name) or value_fault(name, value)
        if fault is not None:
            raise AttributeInvalid(why=fault)


def name_fault(name: str) -> str | None:
    """Returns the fault of a name; None for 1 to 64 of a-z, A-Z, 0-9, "_", "-" and "."."""
    if _NAME.fullmatch(name):
        return None
    return f"{name[:80]!a} is not a name; use 1 to 64 characters of a-z, A-Z, 0-9, '_', '-' and '.'"


def value_fault(name: str, value: AttributeValue) -> str | None:
    """Returns the fault of a value, such as NaN or a too long text, or None."""
    match value:
        case str():
            return text_fault(name, value)
        case tuple() if len(value) > MAX_TEXTS_COUNT:
            return f"{name} has {len(value):,} texts; send at most {MAX_TEXTS_COUNT}"
        case tuple():
            return next(filter(None, (text_fault(name, text) for text in value)), None)
        case float() if not math.isfinite(value):
            return f"{name} is {value}; send a finite number"
        case int() if not -_MAX_INTEGER <= value < _MAX_INTEGER:
            # Without the number: Python refuses to print very long ones.
            return f"{name} is an integer of over 64 bits; send a smaller one"
    return None


def text_fault(name: str, text: str) -> str | None:
    """Returns the fault of a text, over 1,024 bytes or not UTF-8, or None."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return f"{name} is not UTF-8"
    if size_bytes > MAX_TEXT_BYTES:
        return f"{name} has {size_bytes:,} bytes; send at most {MAX_TEXT_BYTES:,}"
    return None
