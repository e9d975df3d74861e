"""Makes JPEGs of hundreds of megapixels in a moment: one strip, encoded once and repeated."""

import re
import struct
from collections.abc import Iterator

import numpy as np
from PIL import Image

from tandem.model_io.pictures.jpeg_frame import FRAME_MARKERS
from tests.support.pictures.pictures import encoded

# The most lines that one row of a JPEG's units has.
STRIP_HEIGHT = 16
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_SCAN_END = re.compile(rb"\xff[^\0\xd0-\xd7]")


def phone_jpeg(width: int, height: int, **options: object) -> bytes:
    """Returns a photograph's JPEG: black on the left, white on the right, with a sensor's noise."""
    rng = np.random.default_rng(0)
    levels = np.linspace(0, 255, width) + rng.normal(0, 3, (STRIP_HEIGHT, width))
    strip = Image.fromarray(levels.clip(0, 255).astype(np.uint8)).convert("RGB")
    settings = {"quality": 90, "subsampling": "4:2:0"} | options
    file = encoded(strip, "JPEG", restart_marker_rows=1, **settings)
    return repeated(file, height // STRIP_HEIGHT)


def repeated(file: bytes, count: int) -> bytes:
    """Returns the JPEG stacked `count` times; each row of units starts with its own state."""
    return b"".join(_repeated_parts(file, count))


def _repeated_parts(file: bytes, count: int) -> Iterator[bytes]:
    yield file[:2]
    position = 2
    while file[position : position + 2] != b"\xff\xd9":
        marker, length = struct.unpack_from(">xBH", file, position)
        segment = bytearray(file[position : position + 2 + length])
        position += 2 + length
        if marker in FRAME_MARKERS:
            [height] = struct.unpack_from(">H", segment, 5)
            struct.pack_into(">H", segment, 5, height * count)
        yield bytes(segment)
        if marker == 0xDA:
            end_found = _SCAN_END.search(file, position)
            assert end_found is not None
            rows = _RESTART.split(file[position : end_found.start()]) * count
            for number, row in enumerate(rows):
                yield row if number == 0 else b"\xff%c" % (0xD0 + (number - 1) % 8) + row
            position = end_found.start()
    yield file[position:]
