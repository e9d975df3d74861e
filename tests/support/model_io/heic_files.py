"""HEIC files for tests: no dependency of the tests writes them, so two small ones are here."""

import base64
import struct
from typing import Final

# 60 x 40 pixels, red on the left and blue on the right, by libheif 1.23 and x265.
_PLAIN: Final = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAX1tZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAA"
    "AAAAAAAAAAAAACJpbG9jAAAAAERAAAEAAQAAAAABoQABAAAAAAAAAEQAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAA"
    "AAABAABodmMxAAAAAA5waXRtAAAAAAABAAAA/WlwcnAAAADdaXBjbwAAAHZodmNDAQNwAAAAkAAAAAAAHvAA/P34"
    "+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAqQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbq5Ka5"
    "uAhoMCAAAAMDIAAAAwAhYgABAAZEAcFzwIkAAAATY29scm5jbHgAAQANAAaAAAAAFGlzcGUAAAAAAAAAQAAAAEAA"
    "AAAoY2xhcAAAADwAAAABAAAAKAAAAAH////8AAAAAv///+gAAAACAAAAEHBpeGkAAAAAAwgICAAAABhpcG1hAAAA"
    "AAAAAAEAAQWBAgMFhAAAAExtZGF0AAAAQCgBrwng4Vk1Lf/u2f/+/W8h7CKmPvKv/ug15gpz/1YHakz4fb7mVbjo"
    "nt8mGS/VPQvdHhg795H7TYZoVFfIduA="
)
# The same, to be turned by a quarter clockwise: a property of the container says so, and EXIF.
_TURNED: Final = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAchtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAA"
    "AAAAAAAAAAAAADRpbG9jAAAAAERAAAIAAQAAAAAB7AABAAAAAAAAAEQAAgAAAAACMAABAAAAAAAAACQAAAA4aWlu"
    "ZgAAAAAAAgAAABVpbmZlAgAAAAABAABodmMxAAAAABVpbmZlAgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAAB"
    "B2lwcnAAAADmaXBjbwAAAHZodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMA"
    "AAMAHroCQGEAAQAqQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbq5Ka5uAhoMCAAAAMDIAAAAwAhYgABAAZEAcFzwIkA"
    "AAATY29scm5jbHgAAQANAAaAAAAAFGlzcGUAAAAAAAAAQAAAAEAAAAAoY2xhcAAAADwAAAABAAAAKAAAAAH////8"
    "AAAAAv///+gAAAACAAAAEHBpeGkAAAAAAwgICAAAAAlpcm90AwAAABlpcG1hAAAAAAAAAAEAAQaBAgMFhIYAAAAa"
    "aXJlZgAAAAAAAAAOY2RzYwACAAEAAQAAAHBtZGF0AAAAQCgBrwng4Vk1Lf/u2f/+/W8h7CKmPvKv/ug15gpz/1YH"
    "akz4fb7mVbjont8mGS/VPQvdHhg795H7TYZoVFfIduAAAAAGRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAA"
    "AAA="
)


def heic(*, is_turned: bool = False) -> bytes:
    """Returns a HEIC file of two colours."""
    return base64.b64decode(_TURNED if is_turned else _PLAIN)


def claiming_heif(file: bytes, width: int, height: int) -> bytes:
    """Returns the HEIC or AVIF file with every size in its header changed."""
    start = 0
    while (start := file.find(b"ispe", start) + 8) >= 8:
        file = file[:start] + struct.pack(">II", width, height) + file[start + 8 :]
    return file
