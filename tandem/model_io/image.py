"""Image file → pixels, the same in training, export and serving; wary of what people send."""

import io
import warnings
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from tandem.errors import ImageTooLarge, ImageUnreadable

MAX_IMAGE_BYTES: Final = 8 * 2**20
MAX_IMAGE_PIXELS: Final = 25_000_000

# Each format Pillow reads is one more parser that strangers' bytes would run through.
_FORMATS: Final = ("JPEG", "PNG", "WEBP")
# What a broken file makes Pillow raise, as found by cutting and flipping files.
_DECODING_ERRORS: Final = (
    OSError,
    SyntaxError,
    ValueError,
    IndexError,
    EOFError,
    MemoryError,
    Image.DecompressionBombError,
)


def decode_image(image_bytes: bytes, size: int) -> NDArray[np.uint8]:
    """Returns uint8 [size, size, 3] RGB of the first frame, upright, on white, letterboxed.

    Raises ImageTooLarge over MAX_IMAGE_BYTES or, by the header alone, MAX_IMAGE_PIXELS; and
    ImageUnreadable for anything that is not a whole JPEG, PNG or WebP file.
    """
    if len(image_bytes) > MAX_IMAGE_BYTES:
        raise ImageTooLarge(got=len(image_bytes), limit=MAX_IMAGE_BYTES, unit="bytes")
    try:
        with warnings.catch_warnings():
            # Pillow only warns of a bomb; our own limit is lower and refuses.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(image_bytes), formats=_FORMATS) as image:
                pixel_count = image.width * image.height
                if pixel_count > MAX_IMAGE_PIXELS:
                    raise ImageTooLarge(got=pixel_count, limit=MAX_IMAGE_PIXELS, unit="pixels")
                image.load()
                return np.asarray(_letterboxed(_rgb_on_white(_upright(image)), size))
    except UnidentifiedImageError:
        raise ImageUnreadable(why="it is not a JPEG, PNG or WebP file") from None
    except _DECODING_ERRORS as error:
        raise ImageUnreadable(why=str(error) or type(error).__name__) from error


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _DECODING_ERRORS:  # a broken EXIF block does not make a picture unreadable
        return image


def _rgb_on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey: convert() would clip instead of scale
        grey = (np.asarray(image).astype(np.float32) / 257.0).clip(0, 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _letterboxed(image: Image.Image, size: int) -> Image.Image:
    if image.size == (size, size):
        return image
    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    scaled = image.resize((width, height), Image.Resampling.BICUBIC)
    if (width, height) == (size, size):
        return scaled
    square = Image.new("RGB", (size, size), "white")
    square.paste(scaled, ((size - width) // 2, (size - height) // 2))
    return square
