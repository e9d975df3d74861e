"""Encodes pictures for a remote cross-encoder."""

import base64
import io
from typing import Final

from PIL import Image

from tandem.model_io.pictures.heif_file import heif_kind
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image import picture_size, upright_picture
from tandem.model_io.pictures.image_file import image_file_parts
from tandem.model_io.pictures.image_rules import ImageRules

# Smaller files are sent as they are, if they are upright.
_SMALL_BYTES: Final = 256 * 1024
_QUALITY: Final = 90


def data_uri(image_bytes: bytes, longest_side: int, heif: HeifReader | None = None) -> str:
    """Returns the picture as a data URI: a large one upright, on white, scaled down, as a JPEG.

    Raises ImageUnreadable and ImageTooLarge.
    """
    if heif_kind(image_bytes):
        return _uri("jpeg", _small_jpeg(image_bytes, longest_side, heif))
    parts = image_file_parts(image_bytes)
    kind = parts.format.lower()
    if parts.orientation != 1 or len(image_bytes) > _SMALL_BYTES:
        side = min(longest_side, max(picture_size(image_bytes)))
        kind, image_bytes = "jpeg", _small_jpeg(image_bytes, side)
    return _uri(kind, image_bytes)


def _uri(kind: str, image_bytes: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image_bytes).decode()}"


def _small_jpeg(image_bytes: bytes, side: int, heif: HeifReader | None = None) -> bytes:
    picture = upright_picture(image_bytes, ImageRules(size=side), heif)
    page = Image.new("RGB", picture.size, "white")
    page.paste(picture, None, picture if picture.mode == "RGBA" else None)
    file = io.BytesIO()
    page.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
