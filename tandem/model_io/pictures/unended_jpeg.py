"""Tells a JPEG that lacks only its end marker, which every viewer shows, from one cut short.

A decoder makes up what is missing. So such a file is decoded with different continuations: if all
of its pixels are there, none changes one.
"""

import hashlib
import random
import re
from collections.abc import Callable
from typing import Final

from PIL import Image

from tandem.errors import ImageUnreadable
from tandem.model_io.pictures.jpeg_frame import JpegFrame

END_OF_IMAGE: Final = b"\xff\xd9"
_SCAN_MARKER: Final = b"\xff\xda"
_SCAN: Final = re.compile(_SCAN_MARKER)
_RESTART_COUNT: Final = 8
_FIRST_RESTART: Final = 0xD0
_COEFFICIENT_COUNT: Final = 64
# Of four components.
_MAX_SCAN_HEADER_BYTES: Final = 14
_ADDED_BYTES: Final = 256
# One may by chance give the last block what a decoder makes up for it.
_CONTINUATION_COUNT: Final = 2
# Lines that are hashed at a time, so that no second copy of the picture is made.
_STRIP_LINES: Final = 64


def ended(unended: bytes) -> bytes:
    """Returns the file with an end marker; what a cut left of one is removed."""
    return unended.rstrip(b"\xff") + END_OF_IMAGE


def check_complete(
    unended: bytes, frame: JpegFrame | None, decoded: Callable[[bytes], Image.Image]
) -> None:
    """Raises ImageUnreadable unless the file has every pixel; `decoded` decodes a file.

    Whatever `decoded` raises is passed on.
    """
    if frame is None or not (frame.is_sequential or _has_every_scan(unended, frame)):
        raise _cut_short()
    whole = unended.rstrip(b"\xff")
    first = _digest(decoded(whole + END_OF_IMAGE))
    for seed in range(_CONTINUATION_COUNT):
        if first != _digest(decoded(whole + _continuation(whole, seed) + END_OF_IMAGE)):
            raise _cut_short()


def _cut_short() -> ImageUnreadable:
    return ImageUnreadable(why="it is cut short: a JPEG without its end, and pixels are missing")


def _continuation(file: bytes, seed: int) -> bytes:
    """Returns what a decoder takes for further pixels, wherever the file ends.

    Restart markers follow in the order in which it waits for them.
    """
    start = _last_restart(file) + 1
    chance = random.Random(seed)
    parts = [_bytes_without_markers(chance)]
    for number in range(start, start + _RESTART_COUNT):
        parts.append(bytes([0xFF, _FIRST_RESTART + number % _RESTART_COUNT]))
        parts.append(_bytes_without_markers(chance))
    return b"".join(parts)


def _last_restart(file: bytes) -> int:
    """Returns the number of the last restart marker in the last scan; -1 if it has none."""
    place, number = max(
        (file.rfind(bytes([0xFF, _FIRST_RESTART + number])), number)
        for number in range(_RESTART_COUNT)
    )
    return number if place > file.rfind(_SCAN_MARKER) else -1


def _bytes_without_markers(chance: random.Random) -> bytes:
    return bytes(chance.randrange(0xFF) for _ in range(_ADDED_BYTES))


def _has_every_scan(file: bytes, frame: JpegFrame) -> bool:
    """Returns whether a progressive file's scans give every coefficient its last bit.

    A file that ends between two scans is a picture too, of fewer details.
    """
    missing: dict[int, set[int]] = {}
    for found in _SCAN.finditer(file):
        header = file[found.end() : found.end() + _MAX_SCAN_HEADER_BYTES]
        if len(header) < 3 or len(header) < (length := 6 + 2 * header[2]):
            continue
        start, end, bits = header[length - 3 : length]
        for component in header[3 : length - 3 : 2]:
            lacks = missing.setdefault(component, set(range(_COEFFICIENT_COUNT)))
            if not bits & 15:
                lacks -= set(range(start, end + 1))
    return len(missing) == frame.component_count and not any(missing.values())


def _digest(image: Image.Image) -> bytes:
    digest = hashlib.sha256()
    for top in range(0, image.height, _STRIP_LINES):
        bottom = min(image.height, top + _STRIP_LINES)
        digest.update(image.crop((0, top, image.width, bottom)).tobytes())
    return digest.digest()
