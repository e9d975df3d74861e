"""Turns stored images into MCP image content that a model can afford to read."""

import base64
import io
import warnings
from concurrent.futures import ThreadPoolExecutor

from mcp_types import ImageContent
from PIL import Image, ImageOps

_MEDIA_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
_JPEG_QUALITY = 85
# A picture of 25 megapixels takes 100 MB in each, a WebP 400.
_THREAD_COUNT = 2


def picture_threads() -> ThreadPoolExecutor:
    """Returns threads for `picture_content`: 25 megapixels would hold up an event loop."""

    def ignore_sizes() -> None:
        # Tandem has checked the number of pixels, and a draft decodes fewer.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)

    return ThreadPoolExecutor(_THREAD_COUNT, "pictures", ignore_sizes)


def picture_content(image_bytes: bytes, longest_side: int) -> ImageContent | None:
    """Returns the image, scaled down to `longest_side` pixels if it is larger.

    Returns None for a file that Pillow does not read.
    """
    try:
        with Image.open(io.BytesIO(image_bytes)) as opened:
            media_type = _MEDIA_TYPES.get(opened.format or "")
            if media_type is not None and max(opened.size) <= longest_side:
                return _content(image_bytes, media_type)
            return _content(_scaled(opened, longest_side), "image/jpeg")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _scaled(opened: Image.Image, longest_side: int) -> bytes:
    opened.draft("RGB", (longest_side, longest_side))
    # Scaled first, so that the rest takes little memory; a palette cannot be scaled.
    small = opened if opened.mode in ("RGB", "RGBA", "L") else opened.convert("RGBA")
    small.thumbnail((longest_side, longest_side))
    # A JPEG has no orientation here and no transparency.
    turned = ImageOps.exif_transpose(small).convert("RGBA")
    on_white = Image.new("RGB", turned.size, "white")
    on_white.paste(turned, mask=turned)
    written = io.BytesIO()
    on_white.save(written, "JPEG", quality=_JPEG_QUALITY)
    return written.getvalue()


def _content(image_bytes: bytes, media_type: str) -> ImageContent:
    return ImageContent(
        type="image", data=base64.b64encode(image_bytes).decode(), mime_type=media_type
    )
