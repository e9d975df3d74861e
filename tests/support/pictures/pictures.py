"""Image files for tests: made here, good and bad."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

RED, GREEN, BLUE, WHITE, BLACK = (
    (255, 0, 0),
    (0, 255, 0),
    (0, 0, 255),
    (255, 255, 255),
    (0, 0, 0),
)


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    """Returns the image as the bytes of a file."""
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def plain(
    colour: tuple[int, ...] = RED, size: tuple[int, int] = (40, 40), mode: str = "RGB"
) -> Image.Image:
    """Returns an image of one colour."""
    return Image.new(mode, size, colour)


def halves(left: tuple[int, int, int] = RED, right: tuple[int, int, int] = BLUE) -> Image.Image:
    """Returns an image of 60 x 40 pixels, of one colour on the left and another on the right."""
    image = plain(left, (60, 40))
    image.paste(right, (30, 0, 60, 40))
    return image


def noise(seed: int = 0, size: int = 48) -> Image.Image:
    """Returns a square image whose every pixel differs."""
    values = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return Image.fromarray(values)


def png_header(width: int, height: int) -> bytes:
    """Returns a PNG file that claims a size and has next to nothing in it."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(kind, data) for kind, data in chunks)


def claiming_webp(width: int, height: int) -> bytes:
    """Returns a WebP file whose header was changed to claim a size."""
    file = bytearray(encoded(plain(), "WEBP", lossless=True))
    start = file.index(b"VP8L") + 9
    file[start : start + 4] = ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
    return bytes(file)


def claiming_jpeg(width: int, height: int, **options: object) -> bytes:
    """Returns a JPEG file whose header was changed to claim a size."""
    file = bytearray(encoded(plain(), "JPEG", **options))
    start = file.index(b"\xff\xc2" if options.get("progressive") else b"\xff\xc0") + 5
    file[start : start + 4] = struct.pack(">HH", height, width)
    return bytes(file)


def png_chunks(file: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the kind and the data of each chunk of a PNG file."""
    chunks, position = [], 8
    while position < len(file):
        end = position + 8 + int.from_bytes(file[position : position + 4])
        chunks.append((file[position + 4 : position + 8], file[position + 8 : end]))
        position = end + 4
    return chunks


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """Returns a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
