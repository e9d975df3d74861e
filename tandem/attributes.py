"""What is known of an item beside its content, for filters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

from tandem.errors import AttributeInvalid

AttributeValue: TypeAlias = str | int | float | bool | tuple[str, ...]
"""A tuple is a list of words, such as tags."""

Attributes: TypeAlias = Mapping[str, AttributeValue]
"""By name."""

MAX_ATTRIBUTE_COUNT = 64
MAX_TEXT_BYTES = 1024
MAX_TEXTS_COUNT = 64

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_INTEGER = 2**63


def check_attributes(attributes: Attributes) -> None:
    """Raises AttributeInvalid, naming the attribute and what is wrong with it."""
    if len(attributes) > MAX_ATTRIBUTE_COUNT:
        raise AttributeInvalid(
            why=f"there are {len(attributes)}; send at most {MAX_ATTRIBUTE_COUNT}"
        )
    for name, value in attributes.items():
        check_attribute_name(name)
        check_attribute_value(name, value)


def check_attribute_name(name: str) -> None:
    """Raises AttributeInvalid unless it is 1 to 64 characters of a-z, A-Z, 0-9, "_", "-", "."."""
    if not _NAME.fullmatch(name):
        raise AttributeInvalid(
            why=f"{name[:80]!a} is no name; use 1 to 64 characters of a-z, A-Z, 0-9, '_', "
            "'-' and '.'"
        )


def check_attribute_value(name: str, value: AttributeValue) -> None:
    """Raises AttributeInvalid where the value is too large, or no number."""
    match value:
        case str():
            _check_text(name, value)
        case tuple():
            if len(value) > MAX_TEXTS_COUNT:
                raise AttributeInvalid(
                    why=f"{name} has {len(value)} words; send at most {MAX_TEXTS_COUNT}"
                )
            for text in value:
                _check_text(name, text)
        case float() if not math.isfinite(value):
            raise AttributeInvalid(why=f"{name} is {value}; send a finite number")
        case int() if not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise AttributeInvalid(why=f"{name} is {value}; send an integer of 64 bits")


def _check_text(name: str, text: str) -> None:
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise AttributeInvalid(why=f"{name} is not UTF-8") from None
    if size_bytes > MAX_TEXT_BYTES:
        raise AttributeInvalid(why=f"{name} has {size_bytes:,} bytes; send at most 1,024")
