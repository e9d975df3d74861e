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
from tandem.model_io.pictures.jpeg_frame import FRAME_MARKERS, JpegFrame, jpeg_frame
from tandem.model_io.pictures.other_formats import unread_format
from tandem.model_io.pictures.xmp import XMP_KEYWORD, XMP_START, png_packet, xmp_orientation

MAX_PART_COUNT: Final = 16_384
"""Limits PNG and WebP chunks and JPEG segments. 32 MiB of PNG in 8 KiB chunks has 4,000."""
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
# Shorter runs cost little, and each of theirs would take memory here.
_JPEG_FILLING = re.compile(rb"\xff{256,}")
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
    """1 to 8, as EXIF counts them; 1 is upright."""
    jpeg_frame: JpegFrame | None = None
    """Of a JPEG, if it has one."""
    held_coefficient_bytes: int = 0
    """Memory that a JPEG's decoder needs before it gives the first line."""
    is_unended: bool = False
    """Whether a JPEG has no end marker: it lacks only that, or is cut short."""


@dataclass(slots=True)
class _Turned:
    """Collects what a file says about its orientation; the first part of each kind counts."""

    exif: bytes = b""
    xmp: int | None = None

    def add_exif(self, exif: bytes) -> None:
        self.exif = self.exif or exif

    def add_xmp(self, packet: bytes) -> None:
        if self.xmp is None:
            self.xmp = xmp_orientation(packet)

    @property
    def orientation(self) -> int:
        """EXIF's, also one out of range, which counts as upright; XMP's if EXIF has none."""
        found = _exif_orientation(self.exif)
        if found is None:
            found = self.xmp
        return found if found is not None and 1 <= found <= 8 else 1


def image_file_parts(file: bytes) -> ImageFileParts:
    """Returns the parts of a JPEG, PNG or WebP file.

    Raises ImageUnreadable for any other file, ImageTooLarge for one with too many parts, frames or
    scans. The decoder detects other defects.
    """
    for signature, walk in _WALKS.items():
        if signature.match(file):
            return walk(file)
    raise ImageUnreadable(why=unread_format(file))


def _png(file: bytes) -> ImageFileParts:
    kept, turned = [_PNG_SIGNATURE], _Turned()
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
            turned.add_exif(file[position + 8 : end - 4])
        elif kind == b"iTXt" and file.startswith(XMP_KEYWORD, position + 8):
            turned.add_xmp(png_packet(file[position + 8 : end - 4]))
        elif kind == b"acTL":
            _check_count(_unpacked(">I", file, position + 8), MAX_FRAME_COUNT, "frames")
        position = end
        if kind == b"IEND":
            break
    return ImageFileParts("PNG", b"".join(kept), turned.orientation)


def _jpeg(file: bytes) -> ImageFileParts:
    # Views, because a photograph's scan is nearly all of a file of tens of MB.
    view = memoryview(file)
    kept: list[bytes | memoryview] = [view[:2]]
    turned = _Turned()
    frames: list[JpegFrame] = []
    scan_component_count = 0
    position = 2
    part_count = 0
    is_unended = False
    while found := _JPEG_MARKER.search(file, position):
        marker, position = found[1][0], found.end()
        part_count += 1
        _check_count(part_count, MAX_PART_COUNT, "parts")
        if marker == _START_OF_SCAN:
            scan_component_count = _unpacked(">B", file, position + 2)
            end = _jpeg_end(file, position - 2, part_count)
            is_unended = end is None
            kept.append(_without_filling(view[position - 2 : end]))
            break
        if marker in _ALONE:
            continue
        end = position + max(2, _unpacked(">H", file, position))
        if marker in FRAME_MARKERS and (frame := jpeg_frame(marker, file[position:end])):
            frames.append(frame)
        if not _is_metadata(marker):
            kept += [view[position - 2 : position], view[position:end]]
        elif marker == _APP1 and file.startswith(_EXIF_START, position + 2):
            turned.add_exif(file[position + 2 : end])
        elif marker == _APP1 and file.startswith(XMP_START, position + 2):
            turned.add_xmp(file[position + 2 + len(XMP_START) : end])
        position = end
    # A decoder refuses a second frame; until then, the largest counts.
    frame = max(frames, key=lambda each: each.pixel_count, default=None)
    held_bytes = max((each.held_bytes(scan_component_count) for each in frames), default=0)
    return ImageFileParts("JPEG", b"".join(kept), turned.orientation, frame, held_bytes, is_unended)


def _jpeg_end(file: bytes, position: int, part_count: int) -> int | None:
    """Returns the end of the picture whose first scan is at `position`, and counts its scans.

    None if it has no end marker.

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
    return None


def _without_filling(scans: memoryview) -> bytes | memoryview:
    """Returns the scans with one FF for each long run: 32 MiB of FFs take a decoder 3 s."""
    return _JPEG_FILLING.sub(b"\xff", scans) if _JPEG_FILLING.search(scans) else scans


def _is_metadata(marker: int) -> bool:
    # JFIF and Adobe segments define the colour space.
    is_application = _APP0 <= marker <= _APP15 and marker not in (_APP0, _APP14)
    return is_application or marker == _COMMENT


def _webp(file: bytes) -> ImageFileParts:
    turned = _Turned()
    position = 12
    part_count = frame_count = 0
    while position + 8 <= len(file):
        kind, length = struct.unpack_from("<4sI", file, position)
        start, end = position + 8, position + 8 + length
        part_count += 1
        _check_count(part_count, MAX_PART_COUNT, "parts")
        if kind == b"ANMF":
            frame_count += 1
            _check_count(frame_count, MAX_FRAME_COUNT, "frames")
        elif kind == b"EXIF":
            turned.add_exif(file[start:end])
        elif kind == b"XMP ":
            turned.add_xmp(file[start:end])
        position = end + length % 2
    # The decoder skips what it does not decode, so nothing is removed.
    return ImageFileParts("WEBP", file, turned.orientation)


def _exif_orientation(exif: bytes) -> int | None:
    """Returns the orientation in EXIF's first directory; None if it is missing or broken."""
    tiff = exif.removeprefix(_EXIF_START)
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return None
    directory = _unpacked(f"{order}I", tiff, 4)
    entry_count = min(_unpacked(f"{order}H", tiff, directory), _MAX_EXIF_ENTRY_COUNT)
    for number in range(entry_count):
        start = directory + 2 + 12 * number
        if _unpacked(f"{order}H", tiff, start) == _ORIENTATION_TAG:
            kind = _EXIF_INTEGERS.get(_unpacked(f"{order}H", tiff, start + 2), "H")
            return _unpacked(f"{order}{kind}", tiff, start + 8)
    return None


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
