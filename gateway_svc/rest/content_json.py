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

import re
from typing import Any

from gateway_svc.faults import malformed
from gateway_svc.json_message import parsed
from tandem.contract.picture_base64 import decoded_picture, is_data_uri
from tandem.v1 import content_pb2

# Schemes and media types are without case.
_PICTURE = re.compile(r"\s{0,9}data:image/", re.IGNORECASE)
_URL = re.compile(r"\s{0,9}[A-Za-z][A-Za-z0-9+.-]{0,200}:")
_BASE64_REMEDY = "send the bytes of the picture's file as base64"
_PICTURES = ("image", "image_url", "image_base64")
# OpenAI has two names for each.
_TEXT_TYPES, _PICTURE_TYPES = ("text", "input_text"), (*_PICTURES, "input_image")


def content_of(value: Any, where: str) -> content_pb2.Content:  # noqa: ANN401 (JSON)
    """Returns the content of a JSON value; raises RequestMalformed, which names `where`."""
    if isinstance(value, str):
        if is_data_uri(value) or _PICTURE.match(value):
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
    if not is_data_uri(text) and _URL.match(text):
        raise malformed(
            f"{where} is a URL, and nothing is fetched",
            "send the picture's bytes as base64, or as a data: URI with base64",
        )
    try:
        return decoded_picture(text)
    except ValueError:
        raise malformed(f"{where} is not base64", _BASE64_REMEDY) from None


def _image(value: Any, where: str) -> bytes:  # noqa: ANN401 (JSON)
    if isinstance(value, dict) and set(value) <= {"url", "detail"} and "url" in value:
        return _image(value["url"], f"{where}.url")
    if not isinstance(value, str):
        raise malformed(f"{where} is not base64 text", _BASE64_REMEDY)
    return _image_bytes(value, where)
