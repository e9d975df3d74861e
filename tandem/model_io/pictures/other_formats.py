"""Names the formats of files that are sent as pictures and are not read, for the error."""

import re
from collections.abc import Mapping
from typing import Final

_FORMATS: Final[Mapping[str, str]] = {
    "GIF": r"GIF8[79]a",
    "TIFF": r"II\*\0|MM\0\*",
    "BMP": r"BM.{4}\0\0\0\0",
    "JPEG XL": r"\xff\n|\0\0\0\x0cJXL ",
    "JPEG 2000": r"\xffO\xffQ|\0\0\0\x0cjP  ",
    "Photoshop": r"8BPS",
    "PDF": r"%PDF-",
    "video (MP4 or QuickTime)": r".{4}ftyp(?:isom|mp4|qt|avc1|M4V)",
    "an HTML page": r"\s*<(?:!doctype html|html)",
    "SVG": r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!doctype svg[^>]*>\s*)?<svg",
}
_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_READ_BYTES: Final = 512


def unread_format(file: bytes) -> str:
    """Returns why a file that is not JPEG, PNG or WebP is not read, with its format if known.

    >>> unread_format(b"GIF89a, and more")
    'it is GIF, not a JPEG, PNG or WebP file; convert it'
    """
    if file.startswith(_POINTER):
        return (
            "it is a pointer of git-lfs, not a JPEG, PNG or WebP file; download what it points to: "
            "git lfs pull"
        )
    start = file[:_READ_BYTES]
    for name, pattern in _FORMATS.items():
        if re.match(pattern.encode("latin-1"), start, re.DOTALL | re.IGNORECASE):
            advice = "" if name.startswith("an ") else "; convert it"
            return f"it is {name}, not a JPEG, PNG or WebP file{advice}"
    return "it is not a JPEG, PNG or WebP file"
