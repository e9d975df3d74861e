"""Parses an image file before decoding: bounds its parts, and removes what no model reads.

Pillow reads segments and chunks in Python, and keeps texts, profiles and EXIF: 8 MiB of empty
chunks take it 3.5 s and 65 MiB, and 8 MiB of fill bytes 7 s, while it holds the GIL. So the file is
parsed here first, and Pillow gets it without those parts.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tandem.errors import ImageTooLarge, ImageUnreadable

MAX_PART_COUNT: Final = 16_384
"""Limits PNG and WebP chunks and JPEG segments. 8 MiB of PNG in 8 KiB chunks has 1,000."""
MAX_FRAME_COUNT: Final = 1_000
"""Limits the frames of an animation, of which only the first is used."""
MAX_SCAN_COUNT: Final = 64
"""Limits the scans of a progressive JPEG, each over the whole picture. Most have 10."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ORIENTATION_TAG = 0x112
_EXIF_START = b"Exif\0\0"
# A camera's first directory has about 20 entries.
_MAX_EXIF_ENTRY_COUNT = 1_000
_EXIF_INTEGERS: Mapping[int, str] = {1: "B", 3: "H", 4: "I"}

# Any number of FFs may precede a marker, and matching the last is enough: "\xff+" is quadratic,
# and would take days for 8 MiB of FFs without a marker.
_JPEG_MARKER = re.compile(rb"\xff([^\xff\0])")
# Restart markers separate pixel data; a picture has thousands.
_JPEG_MARKER_NO_RESTART = re.compile(rb"\xff([^\xff\0\xd0-\xd7])")
_START_OF_IMAGE, _END_OF_IMAGE, _START_OF_SCAN = 0xD8, 0xD9, 0xDA
# Decoders know no marker below this, and those that skip one skip no segment.
_FIRST_SEGMENT = 0xC0
_APP0, _APP1, _APP14, _APP15, _COMMENT = 0xE0, 0xE1, 0xEE, 0xEF, 0xFE
# SOI, EOI, restarts and TEM have no segment; every other marker starts one, with its length.
_ALONE = frozenset({0x01, *range(0xD0, 0xDA)})


@dataclass(frozen=True, slots=True)
class ImageFileParts:
    """Describes what to decode, and its orientation."""

    format: str
    """"JPEG", "PNG" or "WEBP"."""
    decodable_bytes: bytes
    """The file without the parts that do not affect pixels."""
    orientation: int
    """EXIF orientation, 1 to 8; 1 is upright."""


def image_file_parts(file: bytes) -> ImageFileParts:
    """Returns the parts of a JPEG, PNG or WebP file.

    Raises ImageUnreadable for any other file, ImageTooLarge for one with too many parts, frames or
    scans. The decoder detects other defects.
    """
    for signature, walk in _WALKS.items():
        if signature.match(file):
            return walk(file)
    raise ImageUnreadable(why="it is not a JPEG, PNG or WebP file")


def _png(file: bytes) -> ImageFileParts:
    kept, exif = [_PNG_SIGNATURE], b""
    position = len(_PNG_SIGNATURE)
    part_count = 0
    while position + 8 <= len(file):
        length, kind = struct.unpack_from(">I4s", file, position)
        end = position + 12 + length
        part_count += 1
        _check_count(part_count, MAX_PART_COUNT, "parts")
        # Critical chunks start with a capital; of the others only transparency affects pixels.
        if not kind[0] & 0x20 or kind == b"tRNS":
            kept.append(file[position:end])
        elif kind == b"eXIf":
            exif = exif or file[position + 8 : end - 4]
        elif kind == b"acTL":
            _check_count(_unpacked(">I", file, position + 8), MAX_FRAME_COUNT, "frames")
        position = end
        if kind == b"IEND":
            break
    return ImageFileParts("PNG", b"".join(kept), _orientation(exif))


def _jpeg(file: bytes) -> ImageFileParts:
    kept, exif = [file[:2]], b""
    position = 2
    part_count = 0
    while found := _JPEG_MARKER.search(file, position):
        marker, position = found[1][0], found.end()
        part_count += 1
        _check_count(part_count, MAX_PART_COUNT, "parts")
        if marker == _START_OF_SCAN:
            kept.append(file[position - 2 : _jpeg_end(file, position - 2, part_count)])
            break
        if marker in _ALONE:
            continue
        end = position + max(2, _unpacked(">H", file, position))
        segment = file[position:end]
        if not _is_metadata(marker):
            kept += [b"\xff", found[1], segment]
        elif marker == _APP1 and segment.startswith(_EXIF_START, 2):
            exif = exif or segment[2:]
        position = end
    return ImageFileParts("JPEG", b"".join(kept), _orientation(exif))


def _jpeg_end(file: bytes, position: int, part_count: int) -> int:
    """Returns the end of the picture whose first scan is at `position`, and counts its scans.

    After it, phones append a video, which may contain bytes that look like scans. It is cut off, so
    that no decoder finds an uncounted scan.
    """
    scan_count = 0
    while found := _JPEG_MARKER_NO_RESTART.search(file, position):
        marker, position = found[1][0], found.end()
        if marker == _END_OF_IMAGE:
            return position
        part_count += 1
        _check_count(part_count, MAX_PART_COUNT, "parts")
        if marker == _START_OF_SCAN:
            scan_count += 1
            _check_count(scan_count, MAX_SCAN_COUNT, "scans")
        if marker >= _FIRST_SEGMENT and marker != _START_OF_IMAGE:
            position += max(2, _unpacked(">H", file, position))
    return len(file)


def _is_metadata(marker: int) -> bool:
    # JFIF and Adobe segments define the colour space.
    is_application = _APP0 <= marker <= _APP15 and marker not in (_APP0, _APP14)
    return is_application or marker == _COMMENT


def _webp(file: bytes) -> ImageFileParts:
    exif = b""
    position = 12
    part_count = frame_count = 0
    while position + 8 <= len(file):
        kind, length = struct.unpack_from("<4sI", file, position)
        part_count += 1
        _check_count(part_count, MAX_PART_COUNT, "parts")
        if kind == b"ANMF":
            frame_count += 1
            _check_count(frame_count, MAX_FRAME_COUNT, "frames")
        elif kind == b"EXIF":
            exif = exif or file[position + 8 : position + 8 + length]
        position += 8 + length + length % 2
    # The decoder skips what it does not decode, so nothing is removed.
    return ImageFileParts("WEBP", file, _orientation(exif))


def _orientation(exif: bytes) -> int:
    """Returns the orientation in EXIF's first directory, 1 if it is missing or broken."""
    tiff = exif.removeprefix(_EXIF_START)
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 1
    directory = _unpacked(f"{order}I", tiff, 4)
    entry_count = min(_unpacked(f"{order}H", tiff, directory), _MAX_EXIF_ENTRY_COUNT)
    for number in range(entry_count):
        start = directory + 2 + 12 * number
        if _unpacked(f"{order}H", tiff, start) == _ORIENTATION_TAG:
            kind = _EXIF_INTEGERS.get(_unpacked(f"{order}H", tiff, start + 2), "H")
            value = _unpacked(f"{order}{kind}", tiff, start + 8)
            return value if 1 <= value <= 8 else 1
    return 1


def _unpacked(layout: str, data: bytes, position: int) -> int:
    """Returns the integer at an offset; 0 past the end."""
    if position + struct.calcsize(layout) > len(data):
        return 0
    [value] = struct.unpack_from(layout, data, position)
    return int(value)


def _check_count(count: int, limit: int, unit: str) -> None:
    if count > limit:
        raise ImageTooLarge(got=count, limit=limit, unit=unit)


# By signature, not through Image.open, which would expose a parser for each of its formats to
# untrusted bytes, and only warns of a decompression bomb where we reject.
_WALKS: Final[Mapping[re.Pattern[bytes], Callable[[bytes], ImageFileParts]]] = {
    re.compile(rb"\xff\xd8\xff"): _jpeg,
    re.compile(rb"\x89PNG\r\n\x1a\n"): _png,
    re.compile(rb"RIFF....WEBP", re.DOTALL): _webp,
}
