"""A picture of a format that is not read is refused with the format's name and what to do."""

import pytest

from tandem.errors import ImageUnreadable
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tests.support.pictures.pictures import encoded, plain

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


@pytest.mark.parametrize(
    ("file", "named"),
    [
        (encoded(plain(), "GIF"), "it is GIF, .*convert it"),
        (encoded(plain(), "JPEG2000"), "it is JPEG 2000"),
        (b"%PDF-1.7\n", "it is PDF"),
        (b"\0\0\0 ftypisom" + bytes(40), "it is video"),
        (b'<?xml version="1.0"?>\n<!-- a --><svg width="1"/>', "it is SVG"),
        (b"\n<!DOCTYPE HTML><html>404</html>", "it is an HTML page"),
        (POINTER, "pointer of git-lfs.*git lfs pull"),
        (b"BM, two dogs", "it is not a JPEG"),
        (b"<!--" * 2**20, "it is not a JPEG"),
    ],
)
def test_the_format_is_named(file: bytes, named: str) -> None:
    with pytest.raises(ImageUnreadable, match=named):
        decode_image(file, ImageRules(size=32))
