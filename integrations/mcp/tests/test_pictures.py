"""Pictures as a model reads them."""

import base64
import io

from mcp_types import ImageContent
from PIL import Image

from tandem_mcp.pictures import picture_content


def file_of(image: Image.Image, kind: str, **options: object) -> bytes:
    """Returns the image as a file."""
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def opened(content: ImageContent | None) -> Image.Image:
    """Returns the image that a model reads."""
    assert content is not None
    image = Image.open(io.BytesIO(base64.b64decode(content.data)))
    assert Image.MIME[image.format or ""] == content.mime_type
    return image


def test_a_small_file_is_unchanged() -> None:
    """Bytes and type."""
    small = file_of(Image.new("RGB", (20, 10), "red"), "WEBP")

    content = picture_content(small, 20)

    assert content is not None
    assert base64.b64decode(content.data) == small
    assert content.mime_type == "image/webp"


def test_a_large_one_is_scaled_on_white() -> None:
    """A JPEG has no transparency; black would hide dark drawings."""
    large = file_of(Image.new("RGBA", (400, 200), (0, 0, 0, 0)), "PNG")

    image = opened(picture_content(large, 100))

    assert image.size == (100, 50)
    assert image.format == "JPEG"
    assert image.convert("RGB").getpixel((50, 25)) == (255, 255, 255)


def test_a_photograph_is_turned_upright() -> None:
    """The orientation is lost with EXIF."""
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = file_of(Image.new("RGB", (400, 200), "red"), "JPEG", exif=exif)

    assert opened(picture_content(lying, 100)).size == (50, 100)


def test_a_file_that_is_not_a_picture_is_left_out() -> None:
    """Also one that ends early."""
    whole = file_of(Image.effect_noise((400, 400), 50).convert("RGB"), "PNG")

    assert picture_content(b"no picture", 100) is None
    assert picture_content(whole[: len(whole) // 2], 100) is None
    assert picture_content(whole, 100) is not None
