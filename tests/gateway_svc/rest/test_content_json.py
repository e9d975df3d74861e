"""gateway_svc.rest.content_json: pictures that are read in pieces are the same pictures."""

from __future__ import annotations

import base64
import random
import tracemalloc
from contextlib import suppress
from urllib.parse import quote

import pytest

from gateway_svc.rest.content_json import content_of
from tandem.contract.picture_base64 import PIECE_CHARACTERS
from tandem.errors import RequestMalformed

PIECE_BYTES = PIECE_CHARACTERS // 4 * 3


@pytest.mark.parametrize("prefix", ["data:image/png;base64,"])
@pytest.mark.parametrize("size", [PIECE_BYTES + each for each in (-1, 0, 1, 2, PIECE_BYTES)])
def test_a_large_picture_is_read_whole(prefix: str, size: int) -> None:
    picture = random.Random(size).randbytes(size)

    content = content_of({"image": prefix + base64.b64encode(picture).decode()}, "query")

    assert content.image == picture


@pytest.mark.parametrize("prefix", ["data:image/png;base64,", "DATA:Image/PNG;BASE64,"])
def test_a_data_uri_is_a_picture_wherever_a_text_may_be(prefix: str) -> None:
    uri = prefix + base64.b64encode(b"\x89PNG").decode()

    assert content_of(uri, "query").image == b"\x89PNG"
    assert content_of({"image": uri}, "query").image == b"\x89PNG"
    assert content_of({"text": uri}, "query").text == uri
    assert content_of("data: image/png", "query").text == "data: image/png"


@pytest.mark.parametrize(
    "prefix",
    [
        "data:application/octet-stream;base64,",  # which a browser says of what it does not know
        "data:;base64,",
        ' data:image/png;name="a b.png";charset=utf-8;base64, ',
    ],
)
def test_a_data_uri_of_any_type_is_a_picture_and_never_a_text(prefix: str) -> None:
    """As a text it would get scores that mean nothing."""
    assert content_of(prefix + "iVBORw==", "query").image == b"\x89PNG"

    with pytest.raises(RequestMalformed, match="is a URL"):
        content_of(" data:image/svg+xml,<svg/>", "query")


@pytest.mark.parametrize("size", [1, 2, 3, 4, PIECE_BYTES + 1, 2 * PIECE_BYTES + 2])
@pytest.mark.parametrize("line_end", ["", "\n", "\r\n"])
def test_base64_may_be_url_safe_wrapped_and_without_padding(size: int, line_end: str) -> None:
    picture = random.Random(size).randbytes(size)
    digits = base64.urlsafe_b64encode(picture).decode().rstrip("=")
    lines = [digits[place : place + 76] for place in range(0, len(digits), 76)]

    assert content_of({"image": line_end.join([*lines, ""])}, "query").image == picture


def test_a_data_uri_may_be_percent_encoded() -> None:
    """As a browser writes it into a URL."""
    digits = base64.b64encode(b"\xfb\xff\x89PNG").decode()
    content = content_of(f"data:image/png;base64,{quote(digits, safe='')}", "query")

    assert "%" in quote(digits, safe="")
    assert content.image == b"\xfb\xff\x89PNG"


@pytest.mark.parametrize("digits", ["%41", "%2B", "%2b", "%", "A"])
def test_no_uri_takes_many_times_its_own_memory(digits: str) -> None:
    uri = "data:image/png;base64," + digits * 500_000
    tracemalloc.start()
    try:
        with suppress(RequestMalformed):
            content_of(uri, "query")
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most_bytes < 5 * len(uri) + 4 * PIECE_CHARACTERS


@pytest.mark.parametrize("kind", ["image", 7])
def test_a_part_is_of_the_type_that_it_has(kind: object) -> None:
    with pytest.raises(RequestMalformed, match="query has text, and its type is none of text, "):
        content_of({"type": kind, "text": "a dog"}, "query")


@pytest.mark.parametrize("kind", ["text"])
def test_a_picture_is_of_the_type_that_it_has(kind: str) -> None:
    """Each API names it otherwise, and all of its names are read."""
    with pytest.raises(RequestMalformed, match="and its type is none of image, image_url"):
        content_of({"type": kind, "image": "iVBORw=="}, "query")

    for known in (None, "image", "image_url", "image_base64", "input_image"):
        assert content_of({"type": known, "image": "iVBORw=="}, "query").image == b"\x89PNG"[:4]


@pytest.mark.parametrize(
    "text",
    [
        # What each piece alone would take for a whole one.
        "A" * (PIECE_CHARACTERS - 4) + "AAA=" + "A" * 8,
        "A" * (PIECE_CHARACTERS + 1),
        "A" * PIECE_CHARACTERS + "éAAA",
    ],
    ids=["padding", "short", "letter"],
)
def test_a_large_text_that_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(RequestMalformed, match="is not base64"):
        content_of({"image": text}, "query")
