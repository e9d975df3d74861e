"""Image file → pixels, the same in training, export and serving; wary of what people send."""

import io
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from tandem.errors import ImageTooLarge, ImageUnreadable

MAX_IMAGE_BYTES: Final = 8 * 2**20
MAX_IMAGE_PIXELS: Final = 25_000_000

# By name, not through Image.open: each format it knows is one more parser that strangers' bytes
# would run through, and it only warns of a bomb where we refuse.
_READERS: Final[Mapping[re.Pattern[bytes], type[ImageFile.ImageFile]]] = {
    re.compile(rb"\xff\xd8\xff"): JpegImageFile,
    re.compile(rb"\x89PNG\r\n\x1a\n"): PngImageFile,
    re.compile(rb"RIFF....WEBP", re.DOTALL): WebPImageFile,
}
# What broken files make Pillow raise: half a million cut and flipped files gave the first three,
# the others are what its parsers can raise on paper.
_BROKEN: Final = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    TypeError,
    ZeroDivisionError,
    struct.error,
    zlib.error,
)


def decode_image(image_bytes: bytes, size: int) -> NDArray[np.uint8]:
    """Returns uint8 [size, size, 3] RGB of the first frame, upright, letterboxed on white.

    Raises ImageTooLarge over MAX_IMAGE_BYTES or, by the header alone, MAX_IMAGE_PIXELS; and
    ImageUnreadable for anything that is not a whole JPEG, PNG or WebP file.
    """
    if len(image_bytes) > MAX_IMAGE_BYTES:
        raise ImageTooLarge(got=len(image_bytes), limit=MAX_IMAGE_BYTES, unit="bytes")
    try:
        with _open(image_bytes) as image:
            _check_pixel_count(image.width * image.height)
            image.load()
            # Scaled first: turning and blending then cost a thumbnail's time and memory.
            scaled = _scaled(_in_8_bits(image), size)
    except _BROKEN as error:
        raise ImageUnreadable(why=str(error) or type(error).__name__) from error
    return np.asarray(_letterboxed(_upright(scaled), size))


def _open(image_bytes: bytes) -> ImageFile.ImageFile:
    for signature, reader in _READERS.items():
        if signature.match(image_bytes):
            try:
                return reader(io.BytesIO(image_bytes))
            except Image.DecompressionBombError as error:
                # The WebP reader has a limit of its own, above ours, that it looks at first.
                [pixel_count, *_] = re.findall(r"\d+", str(error))
                _check_pixel_count(int(pixel_count))
                raise
    raise ImageUnreadable(why="it is not a JPEG, PNG or WebP file")


def _check_pixel_count(pixel_count: int) -> None:
    if pixel_count > MAX_IMAGE_PIXELS:
        raise ImageTooLarge(got=pixel_count, limit=MAX_IMAGE_PIXELS, unit="pixels")


def _in_8_bits(image: Image.Image) -> Image.Image:
    """Returns the image as RGB, or RGBA where some of it may be seen through."""
    if image.mode.startswith("I"):  # 16-bit grey: convert() would clip instead of scale
        grey = np.asarray(image).clip(0, 65535) // 257
        # The old image's EXIF says which side is up.
        return _with_info(Image.fromarray(grey.astype(np.uint8)).convert("RGB"), image)
    mode = "RGBA" if image.has_transparency_data else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _with_info(image: Image.Image, original: Image.Image) -> Image.Image:
    image.info = dict(original.info)
    return image


def _scaled(image: Image.Image, size: int) -> Image.Image:
    """Returns the image with its longer side `size`; at least one pixel wide and high."""
    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    # Pillow weighs RGBA by its alpha, so colours under transparent pixels do not bleed out.
    # A picture of the right size already comes back as it is: bicubic at scale 1 copies.
    return image.resize((width, height), Image.Resampling.BICUBIC)


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _BROKEN:  # an EXIF block that is broken makes no picture unreadable
        return image


def _letterboxed(image: Image.Image, size: int) -> Image.Image:
    square = Image.new("RGB", (size, size), "white")
    corner = ((size - image.width) // 2, (size - image.height) // 2)
    square.paste(image, corner, image if image.mode == "RGBA" else None)
    return square
