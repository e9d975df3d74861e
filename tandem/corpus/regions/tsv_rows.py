"""Finds and reads rows of a tab-separated file, and matrices of float32 in their base64 fields."""

import binascii
from base64 import b64decode
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import CorpusMalformed, RegionsUnreadable
from tandem.corpus.readers.plain_file import open_plain_file


def row_starts(path: Path) -> dict[str, int]:
    """Returns the byte at which each image's row starts, by the id in its first column.

    Raises CorpusMalformed for an id that two rows have.
    """
    starts: dict[str, int] = {}
    start = 0
    with open_plain_file(path) as file:
        for number, line in enumerate(file, 1):
            image_id = line.partition(b"\t")[0].decode("utf-8", "replace").strip()
            if image_id in starts:
                raise CorpusMalformed(
                    f"{path}: line {number} is image {image_id!r} again; remove one of the two"
                )
            if line.strip():
                starts[image_id] = start
            start += len(line)
    return starts


def row_fields(path: Path, start: int) -> list[bytes]:
    """Returns the columns of the row that starts there."""
    with open_plain_file(path) as file:
        file.seek(start)
        return file.readline().rstrip(b"\r\n").split(b"\t")


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
