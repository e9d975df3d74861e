"""Makes attributes of what tables have: values of NumPy and pandas, dates, decimals, names."""

import re
import unicodedata
from datetime import date, datetime, time, timezone
from decimal import Decimal

from tandem.contract.filtering.attributes import AttributeValue, name_fault

_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_SHORT_REALS = ("float16", "float32")
_MISSING = ("NAType", "NaTType")


def plain_value(value: object) -> AttributeValue | None:
    """Returns what is stored of a value; None for a missing one: None, NaN, NaT or NA.

    Dates and times are texts of ISO 8601, with a time zone in UTC; a decimal is a number. Raises
    TypeError for a value that no attribute has.
    """
    kind = type(value).__name__
    if value is None or kind in _MISSING:
        return None
    match value:
        case bool() | int():
            return value
        case str():
            return str(value)
        case float():
            return None if value != value else float(value)
        case Decimal():
            if value.is_nan():
                return None
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(timezone.utc).isoformat()
        case date() | time():
            return value.isoformat()
        case tuple() | list() if all(isinstance(each, str) for each in value):
            return tuple(map(str, value))
    if kind == "datetime64":  # without importing NumPy
        return None if str(value) == "NaT" else str(value)
    if kind in _SHORT_REALS:
        # By its own digits: 19.99, not the 19.989999771118164 of 64 bits.
        return plain_value(float(str(value)))
    if hasattr(value, "tolist"):
        return plain_value(value.tolist())
    raise TypeError(
        f"it is of type {kind}; send a str, int, float, bool or list of str, or leave it out"
    )


def attribute_name(column: str) -> str:
    """Returns a column's name in the letters that an attribute's may have; empty without any."""
    if name_fault(column) is None:
        return column
    folded = (
        unicodedata.normalize("NFKD", column.replace("ß", "ss")).encode("ascii", "ignore").decode()
    )
    return _NO_NAME.sub("_", folded).strip("_")[:64]
