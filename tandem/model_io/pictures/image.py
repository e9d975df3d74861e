"""Decodes image files to pixels, as in training, and safely for untrusted input."""

import io
import math
import re
import struct
import time
import zlib
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from tandem.contract.content import MAX_IMAGE_BYTES as MAX_IMAGE_BYTES
from tandem.contract.content import ImageContent
from tandem.contract.deadline import Deadline
from tandem.errors import ImageTooLarge, ImageUnreadable
from tandem.model_io.pictures.heif_file import heif_kind
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image_file import ImageFileParts, image_file_parts
from tandem.model_io.pictures.image_rules import ImageRules, Transparency
from tandem.model_io.pictures.orientation import turned_size, turned_upright
from tandem.model_io.pictures.picture_fit import (
    Box,
    colour_mode,
    on_white,
    scaled,
    scaled_size,
    squared,
)
from tandem.model_io.pictures.unended_jpeg import check_complete, ended

MAX_IMAGE_PIXELS: Final = 25_000_000
"""For every picture that is decoded in full."""
MAX_JPEG_PIXELS: Final = 210_000_000
"""For a JPEG, which a decoder can reduce line by line; a phone's 200 megapixels are 201.3."""
MAX_HEIF_PIXELS: Final = 50_000_000
"""For HEIC and AVIF, which are decoded whole, in a process of their own, and then reduced. 48
megapixels of a phone are 48.8."""
MAX_COEFFICIENT_BYTES: Final = 150_000_000
"""For a progressive JPEG, which is held whole before it is reduced: 50 megapixels as phones
subsample colours, 25 without. As much as a PNG of 25 megapixels with 16 bits takes."""
MAX_IMAGE_SIDE: Final = 65_535
"""The maximum of JPEG. The scaling filter takes 32 bytes per pixel of the longer side."""
MAX_DECODE_SECONDS: Final = 5
"""CPU time of one core: pictures within the other limits took less than 2 s."""

# Measured: 361 to 381 MiB for 25 megapixels, where PNG and JPEG took at most 168.
_WEBP_PIXEL_BYTES: Final = 16

# A picture at least twice this factor too large is first reduced by whole blocks: by the JPEG
# decoder, which then does less work, or before the filter. docs/inputs.md has the effect.
_REDUCING_GAP: Final = 2.8

_READERS: Final[Mapping[str, type[ImageFile.ImageFile]]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WEBP": WebPImageFile,
}
BROKEN_FILE: Final = (
    AssertionError,
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
"""Pillow's errors for broken files: half a million truncated and corrupted files raised OSError,
SyntaxError and ValueError; its parsers' code can raise the others."""


def decode_image(
    image_bytes: bytes,
    rules: ImageRules,
    heif: HeifReader | None = None,
    deadline: Deadline | None = None,
) -> NDArray[np.uint8]:
    """Returns uint8 [size, size, 3] RGB of the first frame, upright, fitted by the rules.

    Errors as `upright_picture`.
    """
    return np.asarray(squared(upright_picture(image_bytes, rules, heif, deadline), rules))


def decoding_bytes(content: object) -> int:
    """Returns about the most memory that decoding takes, by a WebP's header; 0 if that is little.

    Pillow reads WebP by libwebp's decoder of animations alone, which holds a picture four times,
    and neither scales nor stops.
    """
    file = content.image_bytes[:30] if isinstance(content, ImageContent) else b""
    kind, head = file[12:16], file[20:]
    if file[8:12] != b"WEBP" or len(head) < 10:
        return 0
    if kind == b"VP8X":
        width, height = _number(head[4:7]) + 1, _number(head[7:10]) + 1
    elif kind == b"VP8L":
        width, height = (_number(head[1:5]) & 0x3FFF) + 1, (_number(head[1:5]) >> 14 & 0x3FFF) + 1
    else:
        width, height = _number(head[6:8]) & 0x3FFF, _number(head[8:10]) & 0x3FFF
    return width * height * _WEBP_PIXEL_BYTES


def upright_picture(
    image_bytes: bytes,
    rules: ImageRules,
    heif: HeifReader | None = None,
    deadline: Deadline | None = None,
) -> Image.Image:
    """Returns the first frame, upright and scaled by the rules, RGB or RGBA, before it is squared.

    A JPEG over MAX_IMAGE_PIXELS is reduced while it is decoded, by exact rules too.
    Raises ImageTooLarge over MAX_IMAGE_BYTES; over `image_file_parts`' limits, the limits of pixels
    or MAX_IMAGE_SIDE, by the header; and over MAX_DECODE_SECONDS of CPU time while decoding.
    Raises ImageUnreadable for anything but a complete JPEG, PNG or WebP file; only a JPEG's end
    marker may be missing. With `heif`, HEIC and AVIF are read too. Raises DeadlineExceeded where a
    JPEG or PNG is decoded past the deadline.
    """
    if len(image_bytes) > MAX_IMAGE_BYTES:
        raise ImageTooLarge(got=len(image_bytes), limit=MAX_IMAGE_BYTES, unit="bytes")
    if kind := heif_kind(image_bytes):
        picture = _heif_picture(image_bytes, kind, heif)
        _check_scaled(scaled_size(picture.size, rules))
        return (_exact if rules.is_exact else _reduced)(picture, 1, rules)
    parts = image_file_parts(image_bytes)
    try:
        with _open(parts, deadline) as image:
            check_size(image, parts)
            _check_scaled(scaled_size(image.size, rules))
            if parts.is_unended:
                _check_complete(parts)
            is_exact = rules.is_exact and _pixel_count(image) <= MAX_IMAGE_PIXELS
            fitted = _exact if is_exact else _reduced
            return fitted(image, parts.orientation, rules)
    except BROKEN_FILE as error:
        raise ImageUnreadable(why=str(error) or type(error).__name__) from error


def heif_reader() -> HeifReader:
    """Returns a reader with this module's limits; raises ValueError without its decoders."""
    return HeifReader(MAX_IMAGE_PIXELS, MAX_DECODE_SECONDS, MAX_HEIF_PIXELS)


def picture_size(image_bytes: bytes) -> tuple[int, int]:
    """Returns width and height by the header, before any rotation; errors as `upright_picture`."""
    parts = image_file_parts(image_bytes)
    try:
        with _open(parts) as image:
            check_size(image, parts)
            return image.size
    except BROKEN_FILE as error:
        raise ImageUnreadable(why=str(error) or type(error).__name__) from error


def _heif_picture(image_bytes: bytes, kind: str, heif: HeifReader | None) -> Image.Image:
    if heif is None:
        raise ImageUnreadable(
            why=f"it is {kind}, which is off by default; set ENCODER_HEIF_ENABLED=true for "
            "encoder_svc, or convert it"
        )
    return heif.read(image_bytes, kind)


def _reduced(image: Image.Image, orientation: int, rules: ImageRules) -> Image.Image:
    """Returns the picture scaled; a large one is first reduced by whole blocks."""
    target = turned_size(scaled_size(turned_size(image.size, orientation), rules), orientation)
    box = _drafted(image, target)
    image.load()
    # Scaled first, so that rotating and blending cost only a thumbnail's time and memory.
    small = scaled(_in_8_bits(image, rules), target, box, rules, _REDUCING_GAP)
    return turned_upright(small, orientation)


def _exact(image: Image.Image, orientation: int, rules: ImageRules) -> Image.Image:
    """Returns the picture scaled from every pixel, in the order of hub processors.

    Those that blend onto white do so first; open_clip scales in the file's own mode, where Pillow
    weights colours by alpha and takes the nearest index of a palette, and drops alpha last.
    """
    image.load()
    if rules.transparency is Transparency.WHITE or image.mode.startswith("I"):
        image = on_white(_in_8_bits(image, rules))
    full = turned_upright(image, orientation)
    small = scaled(full, scaled_size(full.size, rules), (0, 0, *full.size), rules, None)
    return _in_8_bits(small, rules)


class _TimedFile(io.BytesIO):
    """Stops a decoder, which reads block by block, after too much CPU time."""

    def __init__(
        self, file: bytes, start_time: float | None = None, deadline: Deadline | None = None
    ) -> None:
        """Counts CPU time from `start_time` on, by default from now."""
        super().__init__(file)
        self._deadline = deadline
        # The thread's CPU time, so that no picture fails because the machine is busy.
        self._start_time = time.thread_time() if start_time is None else start_time

    def read(self, size: int | None = -1, /) -> bytes:
        if self._deadline is not None:
            self._deadline.left_for("the decoding of a picture")
        seconds = time.thread_time() - self._start_time
        if seconds > MAX_DECODE_SECONDS:
            raise ImageTooLarge(
                got=math.ceil(seconds), limit=MAX_DECODE_SECONDS, unit="seconds of decoding"
            )
        return super().read(size)


def _open(parts: ImageFileParts, deadline: Deadline | None = None) -> ImageFile.ImageFile:
    file = ended(parts.decodable_bytes) if parts.is_unended else parts.decodable_bytes
    try:
        return _READERS[parts.format](_TimedFile(file, deadline=deadline))
    except Image.DecompressionBombError as error:
        # The WebP reader checks its own, higher limit first.
        [pixel_count, *_] = re.findall(r"\d+", str(error))
        raise ImageTooLarge(got=int(pixel_count), limit=MAX_IMAGE_PIXELS, unit="pixels") from error


def _check_complete(parts: ImageFileParts) -> None:
    """Raises ImageUnreadable if a JPEG without its end lacks pixels too."""
    start_time = time.thread_time()

    def decoded(file: bytes) -> Image.Image:
        image = JpegImageFile(_TimedFile(file, start_time))
        if (reduction := _least_reduction(image)) > 1:
            image.draft(None, (image.width // reduction, image.height // reduction))
        image.load()
        return image

    check_complete(parts.decodable_bytes, parts.jpeg_frame, decoded)


def check_size(image: Image.Image, parts: ImageFileParts) -> None:
    """Raises ImageTooLarge over the limits of pixels, of a side, or of coefficients."""
    frame = parts.jpeg_frame
    pixel_count = max(_pixel_count(image), frame.pixel_count if frame else 0)
    # Other codes than Huffman's, which hardly any program writes, may take long without reading.
    limit = MAX_JPEG_PIXELS if frame and frame.is_huffman else MAX_IMAGE_PIXELS
    if pixel_count > limit:
        raise ImageTooLarge(got=pixel_count, limit=limit, unit="pixels")
    if max(image.size) > MAX_IMAGE_SIDE:
        raise ImageTooLarge(got=max(image.size), limit=MAX_IMAGE_SIDE, unit="pixels on a side")
    if parts.held_coefficient_bytes > MAX_COEFFICIENT_BYTES:
        raise ImageTooLarge(
            got=parts.held_coefficient_bytes,
            limit=MAX_COEFFICIENT_BYTES,
            unit="bytes of coefficients, as a progressive JPEG, which a baseline one has not",
        )


def _check_scaled(target: tuple[int, int]) -> None:
    """Refuses a line of a picture, whose longer side a crop would scale to millions of pixels."""
    pixel_count = target[0] * target[1]
    if pixel_count > MAX_IMAGE_PIXELS:
        unit = "pixels where its shorter side has the model's size"
        raise ImageTooLarge(got=pixel_count, limit=MAX_IMAGE_PIXELS, unit=unit)


def _pixel_count(image: Image.Image) -> int:
    return image.width * image.height


def _number(part: bytes) -> int:
    return int.from_bytes(part, "little")


def _in_8_bits(image: Image.Image, rules: ImageRules) -> Image.Image:
    """Returns the image as RGB, or RGBA if parts are transparent and shall be blended."""
    if image.mode.startswith("I"):  # 16-bit grey: convert() would clip instead of scaling
        grey = np.asarray(image).clip(0, 65535) // 257
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if image.mode == "P":
        if image.palette is None:  # which Pillow only asserts
            raise ImageUnreadable(why="it has no palette")
        if image.has_transparency_data:
            image = image.convert("RGBA")  # of the step straight to RGB Pillow warns
    mode = colour_mode(image, rules)
    return image if image.mode == mode else image.convert(mode)


def _drafted(image: Image.Image, target: tuple[int, int]) -> Box:
    """Selects decoding a JPEG at 1/2, 1/4 or 1/8 if that is enough; returns the picture's box.

    A side that is not divisible is rounded up, so its last pixel is only partly picture.
    """
    if isinstance(image, JpegImageFile):
        wanted = (math.ceil(side * _REDUCING_GAP) for side in target)
        reduction = _least_reduction(image)
        width, height = (
            min(side, max(1, full // reduction))
            for side, full in zip(wanted, image.size, strict=True)
        )
        if drafted := image.draft(None, (width, height)):
            return drafted[1]
    return (0, 0, *image.size)


def _least_reduction(image: Image.Image) -> int:
    """Returns the least factor by which a JPEG has to be reduced while it is decoded."""
    factors = (1, 2, 4, 8)
    return next(n for n in factors if _pixel_count(image) <= MAX_IMAGE_PIXELS * n**2)
