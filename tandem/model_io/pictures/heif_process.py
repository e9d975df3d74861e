"""Decodes one HEIC or AVIF file in a process with limits.

    python -m tandem.model_io.pictures.heif_process KIND MAX_PIXELS MAX_SECONDS MAX_RESULT_PIXELS

It reads the file from standard input, and writes mode, width and height, then the pixels. Decoders
of video frames have a long history of memory faults; here a fault ends only this process.
"""

import io
import math
import resource
import struct
import sys
from typing import Final

from PIL import Image
from PIL.AvifImagePlugin import AvifImageFile

from tandem.model_io.pictures.orientation import turned_upright

HEADER: Final = struct.Struct(">4sII")
"""Mode, padded with spaces, width and height."""
REFUSED_STATUS: Final = 3
"""The file is refused; standard error says why."""
LARGE_STATUS: Final = 4
"""It has more pixels than its header said; standard error has their number."""

_ORIENTATION_TAG = 0x112
# A limit on addresses, of which libraries take some hundreds of MB. 25 megapixels take 250 MB in
# all, 50 twice that.
_MAX_ADDRESS_BYTES = 1 << 30


def main(kind: str, max_pixel_count: int, max_seconds: int, max_result_pixel_count: int) -> int:
    """Decodes standard input to standard output, and returns the exit status.

    A picture of more than `max_result_pixel_count` is reduced by whole blocks.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESS_BYTES, _MAX_ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (max_seconds, max_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    file = sys.stdin.buffer.read()
    try:
        read = _heic if kind == "HEIC" else _avif
        picture = read(file, max_pixel_count, max_result_pixel_count)
    except _LargerThanSaid as error:
        print(error, file=sys.stderr)
        return LARGE_STATUS
    except Exception as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        return REFUSED_STATUS
    sys.stdout.buffer.write(HEADER.pack(picture.mode.ljust(4).encode(), *picture.size))
    sys.stdout.buffer.write(picture.tobytes())
    return 0


class _LargerThanSaid(Exception):
    """The bitstream has more pixels than the header said; the message is their number."""


def _heic(file: bytes, max_pixel_count: int, max_result_pixel_count: int) -> Image.Image:
    import pillow_heif

    pillow_heif.options.DECODE_THREADS = 1
    held = pillow_heif.open_heif(io.BytesIO(file), convert_hdr_to_8bit=True)
    _check(held.size, max_pixel_count)
    # The container's rotation and mirroring are applied as it decodes; EXIF's is not to be.
    return _in_colours(_reduced(held.to_pillow(), max_result_pixel_count))


def _avif(file: bytes, max_pixel_count: int, max_result_pixel_count: int) -> Image.Image:
    with AvifImageFile(io.BytesIO(file)) as image:
        _check(image.size, max_pixel_count)
        image.load()
        # Pillow hands on the container's rotation and mirroring in EXIF's place.
        orientation = image.getexif().get(_ORIENTATION_TAG, 1)
        return turned_upright(_in_colours(_reduced(image, max_result_pixel_count)), orientation)


def _check(size: tuple[int, int], max_pixel_count: int) -> None:
    if size[0] * size[1] > max_pixel_count:
        raise _LargerThanSaid(size[0] * size[1])


def _reduced(image: Image.Image, max_pixel_count: int) -> Image.Image:
    """Returns the image, or the mean of the fewest pixels that makes it small enough."""
    factor = math.ceil(math.sqrt(image.width * image.height / max_pixel_count))
    return image.reduce(factor) if factor > 1 else image


def _in_colours(image: Image.Image) -> Image.Image:
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:5])))
