"""Reads texts and pictures in the forms that JSON APIs have for them.

    "a red car"                                            a text
    "data:image/png;base64,iVBORw0…"                       a picture
    {"text": "a red car"}
    {"type": "text", "text": "a red car"}
    {"image": "iVBORw0…"}                                  base64, or a data: URI
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0…"}}
    {"regions": {"features": "AAA8…", …}}                  a detector's, as stored items have them

A URL is refused: no request makes the server fetch anything.
"""

import base64
import binascii
import re
from typing import Any

from gateway_svc.faults import malformed
from gateway_svc.json_message import parsed
from tandem.v1 import content_pb2

# Schemes, media types and base64 are without case.
_DATA = re.compile(r"data:[\w.+/-]*(?:;[\w.+=-]+)*;base64,", re.ASCII | re.IGNORECASE)
_PICTURE = "data:image/"
_DATA_PREFIX_CHARACTERS = 256
# A multiple of four: each piece is base64 of its own.
_PIECE_CHARACTERS = 256 * 1024
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BASE64_REMEDY = "send the bytes of the picture's file as base64"
_PICTURES = ("image", "image_url", "image_base64")
# OpenAI has two names for each.
_TEXT_TYPES, _PICTURE_TYPES = ("text", "input_text"), (*_PICTURES, "input_image")


def content_of(value: Any, where: str) -> content_pb2.Content:  # noqa: ANN401 (JSON)
    """Returns the content of a JSON value; raises RequestMalformed, which names `where`."""
    if isinstance(value, str):
        if value[: len(_PICTURE)].lower() == _PICTURE:  # a data: URI
            return content_pb2.Content(image=_image_bytes(value, where))
        return content_pb2.Content(text=text_of(value, where))
    if not isinstance(value, dict):
        raise malformed(f"{where} is neither a text nor an object")
    if "regions" in value:
        return parsed(value, content_pb2.Content)
    members = {
        name: each
        for name, each in value.items()
        if name not in ("type", "detail") and each is not None
    }
    if len(members) != 1 or (name := next(iter(members))) not in ("text", *_PICTURES):
        raise malformed(
            f"{where} needs exactly one of text, image and image_url", "send one of them"
        )
    types = _TEXT_TYPES if name == "text" else _PICTURE_TYPES
    if value.get("type") not in (None, *types):
        raise malformed(
            f"{where} has {name}, and its type is none of {', '.join(types)}",
            "send one of them, or no type",
        )
    if name == "text":
        return content_pb2.Content(text=text_of(members[name], f"{where}.text"))
    return content_pb2.Content(image=_image(members[name], f"{where}.{name}"))


def text_of(value: Any, where: str) -> str:  # noqa: ANN401 (JSON)
    """Returns a text; raises RequestMalformed, which names `where`."""
    if not isinstance(value, str):
        raise malformed(f"{where} is not text", "send a JSON string")
    return value


def _image_bytes(text: str, where: str) -> bytes:
    """Returns the bytes of base64 or a data: URI; raises RequestMalformed."""
    found = _DATA.match(text[:_DATA_PREFIX_CHARACTERS])
    if found is None and _URL.match(text[:_DATA_PREFIX_CHARACTERS]):
        raise malformed(
            f"{where} is a URL, and nothing is fetched",
            "send the picture's bytes as base64, or as a data: URI with base64",
        )
    try:
        return _decoded(text, found.end() if found else 0)
    except (binascii.Error, ValueError):
        raise malformed(f"{where} is not base64", _BASE64_REMEDY) from None


def _decoded(text: str, start: int) -> bytes:
    """Decodes in pieces, because other threads, such as the event loop, wait for each."""
    if len(text) - start <= _PIECE_CHARACTERS:
        return base64.b64decode(text[start:], validate=True)
    if "=" in text[start:-2]:
        raise ValueError("padding is at the end alone")
    places = range(start, len(text), _PIECE_CHARACTERS)
    pieces = (text[place : place + _PIECE_CHARACTERS] for place in places)
    return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)


def _image(value: Any, where: str) -> bytes:  # noqa: ANN401 (JSON)
    if isinstance(value, dict) and set(value) <= {"url", "detail"} and "url" in value:
        return _image(value["url"], f"{where}.url")
    if not isinstance(value, str):
        raise malformed(f"{where} is not base64 text", _BASE64_REMEDY)
    return _image_bytes(value, where)
