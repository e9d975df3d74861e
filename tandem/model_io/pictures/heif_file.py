"""Recognises HEIC and AVIF files, and bounds them by their header before they are decoded."""

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from tandem.errors import ImageTooLarge, ImageUnreadable

# Brands of still pictures and of sequences, of which the primary picture is shown.
_KINDS: Final[Mapping[bytes, str]] = {
    **dict.fromkeys(
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC"
    ),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
}
# Boxes that have boxes: the metadata, its properties, and their container.
_CONTAINERS: Final = frozenset({b"meta", b"iprp", b"ipco"})
_FULL_BOX_BYTES: Final = 4
_MAX_BOX_COUNT: Final = 16_384
_SIZE_PROPERTY: Final = b"ispe"


def heif_kind(file: bytes) -> str | None:
    """Returns "HEIC" or "AVIF"; None for any other file."""
    if file[4:8] != b"ftyp" or len(file) < 16:
        return None
    [length] = struct.unpack_from(">I", file)
    major, compatible = file[8:12], file[16 : min(length, 256)]
    kind = _KINDS.get(major)
    # "mif1" says only that it is a picture: the others name its codec.
    if kind is not None and b"avif" in [
        compatible[n : n + 4] for n in range(0, len(compatible), 4)
    ]:
        return "AVIF"
    return kind


def check_heif_size(file: bytes, max_pixel_count: int) -> int:
    """Returns the pixels of the largest picture in the file.

    Raises ImageTooLarge if it has more than allowed, or the file too many boxes, and
    ImageUnreadable if the header states no size. HeifReader limits the size that the bitstream
    states.
    """
    largest = 0
    for kind, start, end in _boxes(file):
        if kind == _SIZE_PROPERTY and end - start >= 12:
            width, height = struct.unpack_from(">II", file, start + _FULL_BOX_BYTES)
            largest = max(largest, width * height)
    if not largest:
        raise ImageUnreadable(why="its header has no size")
    if largest > max_pixel_count:
        raise ImageTooLarge(got=largest, limit=max_pixel_count, unit="pixels of HEIC or AVIF")
    return largest


def _boxes(file: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields kind, start and end of each box's data, of those in containers too."""
    # Ends of the containers; a box never reaches past its own.
    left = [(0, len(file))]
    count = 0
    while left:
        position, limit = left.pop()
        while position + 8 <= limit:
            count += 1
            if count > _MAX_BOX_COUNT:
                raise ImageTooLarge(got=count, limit=_MAX_BOX_COUNT, unit="parts")
            length, kind = struct.unpack_from(">I4s", file, position)
            start = position + 8
            if length == 1 and start + 8 <= limit:
                [length] = struct.unpack_from(">Q", file, start)
                start += 8
            end = limit if length == 0 else position + length
            if end < start or end > limit:
                break
            yield kind, start, end
            if kind in _CONTAINERS:
                left.append((start + (_FULL_BOX_BYTES if kind == b"meta" else 0), end))
            position = end
