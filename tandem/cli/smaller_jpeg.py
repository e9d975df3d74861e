"""Scales a JPEG down that is over every server's limit of bytes, before it is sent."""

import io

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from tandem.errors import TandemError
from tandem.model_io.pictures.image import (
    BROKEN_FILE,
    MAX_IMAGE_BYTES,
    MAX_IMAGE_PIXELS,
    check_size,
)
from tandem.model_io.pictures.image_file import image_file_parts

_ORIENTATION_TAG = 0x112
_QUALITY = 90


def sendable_picture(image_bytes: bytes) -> bytes:
    """Returns the file itself, or for a JPEG over MAX_IMAGE_BYTES a smaller one.

    It has a half, a quarter or an eighth of the sides, at most 25 megapixels, the same orientation
    and no other metadata. Any other file stays as it is, for the server to refuse.
    """
    if len(image_bytes) <= MAX_IMAGE_BYTES or not image_bytes.startswith(b"\xff\xd8\xff"):
        return image_bytes
    try:
        return _smaller(image_bytes)
    except (*BROKEN_FILE, TandemError):
        return image_bytes


def _smaller(image_bytes: bytes) -> bytes:
    parts = image_file_parts(image_bytes)
    with JpegImageFile(io.BytesIO(parts.decodable_bytes)) as image:
        check_size(image, parts)
        pixel_count = image.width * image.height
        reduction = next(n for n in (2, 4, 8) if pixel_count <= MAX_IMAGE_PIXELS * n**2)
        image.draft(None, (max(1, image.width // reduction), max(1, image.height // reduction)))
        exif = Image.Exif()
        exif[_ORIENTATION_TAG] = parts.orientation
        file = io.BytesIO()
        # Colours as they are: a CMYK picture is stored as one.
        image.save(file, "JPEG", quality=_QUALITY, exif=exif)
    return file.getvalue()
