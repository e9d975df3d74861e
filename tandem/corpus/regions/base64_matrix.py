"""Reads a matrix of float32 from a base64 field of a tab-separated file."""

import binascii
from base64 import b64decode

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import RegionsUnreadable


def base64_matrix(field: bytes, row_count: int, what: str) -> NDArray[np.float32]:
    """Returns the little-endian float32 of a field as [row_count, width].

    Raises RegionsUnreadable naming `what` for a field that is cut short or not base64.
    """
    try:
        raw = b64decode(field, validate=True)
    except binascii.Error as error:
        raise RegionsUnreadable(
            f"{what} is not whole base64 ({error}); the file is cut short: copy it again"
        ) from error
    if row_count < 1 or not raw or len(raw) % (4 * row_count):
        raise RegionsUnreadable(
            f"{what} has {len(raw):,} bytes, which are not a float32 matrix of {row_count:,} rows; "
            "the file is cut short: copy it again"
        )
    return np.frombuffer(raw, "<f4").reshape(row_count, -1)


def whole_number(field: bytes, what: str) -> int:
    """Returns a field's number; raises RegionsUnreadable naming `what`."""
    if not field.isdigit() or len(field) > 9:
        raise RegionsUnreadable(f"{what} is {field[:20]!r}, not a number")
    return int(field)
