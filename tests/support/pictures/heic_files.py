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


def heic_grid(
    rows: int,
    columns: int,
    size: tuple[int, int],
    *,
    said_size: tuple[int, int] | None = None,
    listed_count: int | None = None,
) -> bytes:
    """Returns a HEIC of tiles of 64 pixels, as phones write photographs.

    Each tile is the picture of `heic`. `said_size` stands in the header in the place of `size`;
    `listed_count` is the number of tiles that it lists, all of them by default.
    """
    source, tile_count = heic(), rows * columns
    tile = _box_of(source, b"mdat")[8:]
    layout = struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, *size)
    grid_id = tile_count + 1
    kinds = [*((number, b"hvc1") for number in range(1, grid_id)), (grid_id, b"grid")]
    names = [_full_box(b"infe", struct.pack(">HH4sx", *(i, 0, kind)), 2) for i, kind in kinds]
    tiles = range(1, 1 + (tile_count if listed_count is None else listed_count))
    listed = struct.pack(f">HH{len(tiles)}H", grid_id, len(tiles), *tiles)
    properties = _box(
        b"ipco",
        _box_of(source, b"hvcC")
        + _full_box(b"ispe", struct.pack(">II", 64, 64))
        + _full_box(b"ispe", struct.pack(">II", *(said_size or size))),
    )
    owned = [struct.pack(">HBBB", number, 2, 0x81, 2) for number in range(1, grid_id)]
    owned.append(struct.pack(">HBB", grid_id, 1, 3))
    parts = [
        _full_box(b"hdlr", bytes(4) + b"pict" + bytes(13)),
        _full_box(b"pitm", struct.pack(">H", grid_id)),
        _full_box(b"iinf", struct.pack(">H", len(kinds)) + b"".join(names)),
        _full_box(b"iref", _box(b"dimg", listed)),
        _box(
            b"iprp",
            properties + _full_box(b"ipma", struct.pack(">I", len(kinds)) + b"".join(owned)),
        ),
    ]
    head = _box(b"ftyp", b"heic" + bytes(4) + b"mif1heic")
    places_size = 16 + 14 * len(kinds)
    start = len(head) + 12 + sum(map(len, parts)) + places_size + 8
    extents = [struct.pack(">HHHII", i, 0, 1, start, len(tile)) for i in range(1, grid_id)]
    extents.append(struct.pack(">HHHII", grid_id, 0, 1, start + len(tile), len(layout)))
    places = _full_box(b"iloc", b"\x44\0" + struct.pack(">H", len(kinds)) + b"".join(extents))
    assert len(places) == places_size
    return head + _full_box(b"meta", b"".join([*parts, places])) + _box(b"mdat", tile + layout)


def _box(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(data), kind) + data


def _full_box(kind: bytes, data: bytes, version: int = 0) -> bytes:
    return _box(kind, struct.pack(">I", version << 24) + data)


def _box_of(file: bytes, kind: bytes) -> bytes:
    start = file.index(kind) - 4
    [length] = struct.unpack_from(">I", file, start)
    return file[start : start + length]
