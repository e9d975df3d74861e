"""JPEGs over the limit of bytes, made smaller before they are sent."""

import io

import numpy as np
import pytest
from PIL import Image

from tandem.cli.smaller_jpeg import sendable_picture
from tandem.contract.content import MAX_IMAGE_BYTES
from tandem.errors import ImageTooLarge
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tests.support.pictures.large_jpegs import phone_jpeg
from tests.support.pictures.pictures import encoded, noise, plain

RULES = ImageRules(size=112)
ORIENTATION_TAG = 0x112


@pytest.fixture(scope="module")
def large() -> bytes:
    """A photograph of 200 megapixels on its side, of more bytes than a server takes."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    return phone_jpeg(16384, 12288, quality=94, exif=exif)


def test_a_large_photograph_is_scaled_to_the_servers_limit(large: bytes) -> None:
    """Of a quarter of its sides, 12.6 megapixels, and the same way up."""
    with pytest.raises(ImageTooLarge):
        decode_image(large, RULES)

    small = sendable_picture(large)

    assert len(small) < MAX_IMAGE_BYTES
    with Image.open(io.BytesIO(small)) as image:
        assert image.size == (4096, 3072)
        assert dict(image.getexif()) == {ORIENTATION_TAG: 6}
    # It is black on the left, which orientation 6 turns to the top.
    levels = decode_image(small, RULES)[:, 56, 0].astype(int)
    expected = decode_image(phone_jpeg(1024, 768), RULES)[56, :, 0].astype(int)
    assert np.abs(levels - expected).max() < 12


@pytest.mark.parametrize(
    "file",
    [
        phone_jpeg(64, 48),
        encoded(plain(), "PNG").ljust(MAX_IMAGE_BYTES + 1),
        encoded(noise(), "JPEG")[:500].ljust(MAX_IMAGE_BYTES + 1),
    ],
    ids=["small", "a PNG", "damaged"],
)
def test_any_other_file_is_left_to_the_server(file: bytes) -> None:
    assert sendable_picture(file) is file
