"""gateway_svc.rest.content_json: pictures that are read in pieces are the same pictures."""

from __future__ import annotations

import base64
import random

import pytest

from gateway_svc.rest.content_json import _PIECE_CHARACTERS, content_of
from tandem.errors import RequestMalformed

PIECE_BYTES = _PIECE_CHARACTERS // 4 * 3


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
        "A" * (_PIECE_CHARACTERS - 4) + "AAA=" + "A" * 8,
        "A" * (_PIECE_CHARACTERS + 3),
        "A" * (_PIECE_CHARACTERS + 2) + "-_",
        "A" * _PIECE_CHARACTERS + "éAAA",
    ],
    ids=["padding", "short", "url_safe", "letter"],
)
def test_a_large_text_that_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(RequestMalformed, match="is not base64"):
        content_of({"image": text}, "query")
