"""Reads pictures in base64, in the forms in which programs write it."""

import base64
import re
from typing import Final

_DATA_URI: Final = re.compile(r"\s{0,9}data:[^,]{0,200};base64,", re.IGNORECASE)
# URL-safe digits, and the ends of wrapped lines.
_PLAIN: Final = {ord("-"): "+", ord("_"): "/"} | dict.fromkeys(map(ord, " \t\r\n"))
# What a URL encodes of the above. Decoding any letter would take a stranger's text twenty-fold.
_ENCODED: Final = {"2B": "+", "2F": "/", "3D": "=", "20": "", "0D": "", "0A": ""}
# A multiple of four: each piece is base64 of its own.
PIECE_CHARACTERS: Final = 256 * 1024


def is_data_uri(text: str) -> bool:
    """Returns whether a text is a data: URI with base64, whatever type it says."""
    return _DATA_URI.match(text) is not None


def decoded_picture(text: str) -> bytes:
    """Returns the bytes of base64 or a data: URI; raises ValueError.

    Digits may be URL-safe, wrapped and, in a URI, percent-encoded, and padding may be missing. They
    are decoded in pieces, because other threads, such as an event loop, wait for each.
    """
    found = _DATA_URI.match(text)
    digits = text[found.end() :] if found else text
    if found and "%" in digits:
        for code, letter in _ENCODED.items():
            digits = digits.replace(f"%{code}", letter).replace(f"%{code.lower()}", letter)
    decoded, left = bytearray(), ""
    digits = digits.rstrip("= \t\r\n")
    for place in range(0, len(digits), PIECE_CHARACTERS):
        piece = left + digits[place : place + PIECE_CHARACTERS].translate(_PLAIN)
        if "=" in piece:
            raise ValueError("padding is at the end alone")
        end = len(piece) - len(piece) % 4
        decoded += base64.b64decode(piece[:end], validate=True)
        left = piece[end:]
    return bytes(decoded + base64.b64decode(left + "=" * (-len(left) % 4), validate=True))
