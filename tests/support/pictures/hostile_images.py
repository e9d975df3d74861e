"""Image files that were made to do harm, or look as if: each with what has to become of it.

Made here, from nothing but code, so that nothing of the kind lies in the repository.
"""

import functools
import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tandem.model_io.pictures.image import MAX_IMAGE_BYTES
from tests.support.pictures.heic_files import heic
from tests.support.pictures.pictures import (
    BLUE,
    RED,
    claiming_jpeg,
    claiming_webp,
    encoded,
    noise,
    plain,
    png_chunk,
    png_header,
)

READ, UNREADABLE, TOO_LARGE = "", "IMAGE_UNREADABLE", "IMAGE_TOO_LARGE"
MIB = 2**20

_PNG = encoded(noise(), "PNG")
_JPEG = encoded(noise(), "JPEG")
_WEBP = encoded(noise(), "WEBP")


@dataclass(frozen=True, slots=True)
class HostileImage:
    """A file, and the reason that refuses it; READ where it is a picture after all."""

    file: bytes
    outcome: str


@functools.cache
def hostile_images() -> Mapping[str, HostileImage]:
    """Returns every file, by name."""
    groups = (
        *(_no_pictures(), _other_formats(), _cut_short(), _sizes()),
        *(_metadata(), _structure(), _odd_but_good()),
    )
    images = {
        name: HostileImage(file, outcome) for group in groups for name, file, outcome in group
    }
    assert all(len(image.file) <= MAX_IMAGE_BYTES + 1 for image in images.values())
    return images


def _no_pictures() -> Iterator[tuple[str, bytes, str]]:
    yield "nothing", b"", UNREADABLE
    yield "one byte", b"\xff", UNREADABLE
    yield "zeros", bytes(100_000), UNREADABLE
    yield "words", b"two dogs left of one umbrella", UNREADABLE
    yield "URL", b"http://127.0.0.1:1/cat.png", UNREADABLE
    yield "path", b"/etc/hostname", UNREADABLE
    yield (
        "SVG with an entity",
        b'<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/hostname">]><svg>&x;</svg>',
        UNREADABLE,
    )
    yield "shell script", b"#!/bin/sh\nexit 1\n", UNREADABLE
    yield "pickle", b"\x80\x04\x95\x16\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94.", UNREADABLE


def _other_formats() -> Iterator[tuple[str, bytes, str]]:
    for name in ("GIF", "TIFF", "BMP", "PPM", "ICO", "PDF", "EPS", "ICNS", "TGA"):
        yield f"{name} called .png", encoded(plain(), name), UNREADABLE
    # They are off by default.
    yield "HEIC", heic(), UNREADABLE
    yield "AVIF", encoded(plain(), "AVIF"), UNREADABLE
    frames = [plain(BLUE if number % 2 else RED, (8, 8)) for number in range(500)]
    yield (
        "GIF of 500 frames",
        encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        UNREADABLE,
    )
    yield "PNG behind a JPEG's signature", b"\xff\xd8\xff" + _PNG, UNREADABLE
    yield "JPEG behind a PNG's signature", b"\x89PNG\r\n\x1a\n" + _JPEG, UNREADABLE


def _cut_short() -> Iterator[tuple[str, bytes, str]]:
    for name, file in (("JPEG", _JPEG), ("PNG", _PNG), ("WebP", _WEBP)):
        yield f"{name} cut in half", file[: len(file) // 2], UNREADABLE
        yield f"{name} of nothing but a signature", file[:12], UNREADABLE
    yield "PNG without pixels", _PNG.replace(b"IDAT", b"iDAT"), UNREADABLE
    yield "PNG with a wrong checksum", _PNG[:29] + b"\0\0\0\0" + _PNG[33:], UNREADABLE


def _sizes() -> Iterator[tuple[str, bytes, str]]:
    yield "empty PNG", png_header(0, 0), UNREADABLE
    yield "PNG of 13,000 squared", one_bit_png(13_000, 13_000), TOO_LARGE
    yield "PNG that claims 10^10 pixels", png_header(100_000, 100_000), TOO_LARGE
    yield "PNG a pixel high", one_bit_png(25_000_000, 1), TOO_LARGE
    yield "PNG a pixel wide", one_bit_png(1, 65_536), TOO_LARGE
    yield "JPEG that claims 65,000 squared", claiming_jpeg(65_000, 65_000), TOO_LARGE
    large = claiming_jpeg(12_000, 9_000, progressive=True)
    yield "progressive JPEG that claims 108 megapixels", large, TOO_LARGE
    # As before of smaller ones: what is missing is grey.
    yield "JPEG that claims 200 megapixels", claiming_jpeg(16_384, 12_288), READ
    yield "WebP that claims 16,383 squared", claiming_webp(16_383, 16_383), TOO_LARGE
    yield "a byte too many", _PNG.ljust(MAX_IMAGE_BYTES + 1), TOO_LARGE
    yield "PNG with more data than pixels", _png(_idat(bytes(64 * MIB)), (40, 40)), READ


def _metadata() -> Iterator[tuple[str, bytes, str]]:
    bomb = zlib.compress(bytes(50 * MIB))
    text = [png_chunk(b"zTXt", b"k%d\0\0" % n + zlib.compress(bytes(MIB))) for n in range(63)]
    yield "PNG with an iTXt bomb", _with_chunks(_itxt(bomb)), READ
    yield "PNG with 63 zTXt of 1 MiB", _with_chunks(*text), READ
    yield "PNG with an ICC bomb", _with_chunks(png_chunk(b"iCCP", b"x\0\0" + bomb)), READ
    yield "PNG with an EXIF bomb", _with_chunks(png_chunk(b"eXIf", _exif_bomb(7 * MIB))), READ
    yield "JPEG with an EXIF bomb", _with_segments(_exif_segment(_exif_bomb(65_000))), READ
    yield "JPEG with EXIF that loops", _with_segments(_exif_segment(_exif_loop())), READ
    yield "WebP with an EXIF bomb", encoded(noise(), "WEBP", exif=_exif_bomb(65_000)), READ
    yield "JPEG with 120 profiles", _with_segments(*[jpeg_segment(0xE2, bytes(65_000))] * 120), READ
    pieces = [jpeg_segment(0xE1, b"Exif\0\0" + bytes(100))] * 16_000
    yield "JPEG with EXIF in 16,000 pieces", _with_segments(*pieces), READ


def _structure() -> Iterator[tuple[str, bytes, str]]:
    yield "PNG of 600,000 chunks", _with_chunks(png_chunk(b"teSt", b"") * 600_000), TOO_LARGE
    yield "JPEG of 2,000,000 segments", _with_segments(b"\xff\xfe\0\2" * 2_000_000), TOO_LARGE
    yield (
        "JPEG with 32 MB of junk",
        _with_segments(jpeg_segment(0xEC, b""), bytes(32_000_000)),
        READ,
    )
    yield "JPEG with 32 MB of filling", _with_segments(b"\xff" * 32_000_000), READ
    yield "JPEG with 32 MB of filling at its end", _JPEG[:2] + b"\xff" * 32_000_000, UNREADABLE
    yield "JPEG with 32 MB of filling behind its scan", _behind_scan(b"\xff" * 32_000_000), READ
    yield "JPEG of 16,000,000 escaped bytes", _behind_scan(b"\xff\0" * 16_000_000), READ
    yield "JPEG of 16,000,000 restarts", _behind_scan(b"\xff\xd0" * 16_000_000), READ
    behind = _behind_scan(b"\xff\xfe\0\2" * 2_000_000)
    yield "JPEG of 2,000,000 segments behind its scan", behind, TOO_LARGE
    yield "JPEG of 10,000 scans", _many_scans(10_000), TOO_LARGE
    # A decoder that took it for a segment would skip 65,535 bytes of scans, which decoders do not.
    hidden = _many_scans(10_000, before=b"\xff\x05\xff\xff")
    yield "JPEG of 10,000 scans behind what is not a segment", hidden, TOO_LARGE
    frame_count = struct.pack(">II", 1_000_000, 0)
    yield "PNG of a million frames", _with_chunks(png_chunk(b"acTL", frame_count)), TOO_LARGE
    frames = [plain(BLUE if number % 2 else RED, (2, 2)) for number in range(1_200)]
    yield (
        "WebP of 1,200 frames",
        encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        TOO_LARGE,
    )


def _odd_but_good() -> Iterator[tuple[str, bytes, str]]:
    yield "1 x 1", encoded(plain(size=(1, 1)), "PNG"), READ
    yield "line", encoded(plain(size=(1, 30_000)), "PNG"), READ
    yield "CMYK", encoded(plain((0, 255, 255, 0), mode="CMYK"), "JPEG"), READ
    yield "16 bits", encoded(Image.fromarray(np.full((9, 9), 77, np.uint16)), "PNG"), READ
    yield "motion JPEG's, without tables", _JPEG.replace(b"\xff\xc4", b"\xff\xec"), READ
    yield "progressive", encoded(noise(), "JPEG", progressive=True), READ
    frames = [plain(BLUE)]
    yield "animated", encoded(plain(), "PNG", save_all=True, append_images=frames), READ
    yield "palette that is too short", _short_palette(), READ
    # As phones store a moving picture; a video has scans by chance.
    yield "video behind a JPEG", _JPEG + b"\0\0\0\x18ftypmp42" + b"\xff\xda\0\x0c" * MIB, READ
    yield "JPEG behind a JPEG", _JPEG * 100, READ
    yield "ZIP behind a PNG", _PNG + b"PK\3\4" + bytes(1_000), READ
    yield "PNG without an end", _PNG[:-12], READ


def one_bit_png(width: int, height: int) -> bytes:
    """Returns a PNG whose every pixel is there, at one bit each, all black."""
    row = bytes(1 + -(-width // 8))
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    return _png(png_chunk(b"IDAT", data), (width, height), bit_depth=1)


def _png(data: bytes, size: tuple[int, int], bit_depth: int = 8) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", *size, bit_depth, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + data + png_chunk(b"IEND", b"")


def _idat(data: bytes) -> bytes:
    return png_chunk(b"IDAT", zlib.compress(data))


def _with_chunks(*chunks: bytes) -> bytes:
    """Returns the good PNG with chunks behind its header."""
    return _PNG[:33] + b"".join(chunks) + _PNG[33:]


def _itxt(compressed: bytes) -> bytes:
    return png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + compressed)


def jpeg_segment(marker: int, data: bytes) -> bytes:
    """Returns a segment of a JPEG file."""
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def _exif_segment(tiff: bytes) -> bytes:
    return jpeg_segment(0xE1, b"Exif\0\0" + tiff)


def _with_segments(*segments: bytes) -> bytes:
    """Returns the good JPEG with segments behind its first two bytes."""
    return _JPEG[:2] + b"".join(segments) + _JPEG[2:]


def _exif_bomb(size_bytes: int) -> bytes:
    """Returns an EXIF whose every entry is nearly all of it: reading each copies it each time."""
    entry_count = min(5_000, (size_bytes - 14) // 12)
    entries = b"".join(
        struct.pack("<HHII", 0x9000 + number, 7, size_bytes - 8, 8) for number in range(entry_count)
    )
    tiff = b"II*\0" + struct.pack("<IH", 8, entry_count) + entries
    return tiff.ljust(size_bytes, b"\0")


def _exif_loop() -> bytes:
    """Returns an EXIF whose next directory is its first."""
    entry = struct.pack("<HHII", 0x8769, 4, 1, 8)  # a sub-directory, the same one too
    return b"II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 8)


def _many_scans(count: int, before: bytes = b"") -> bytes:
    """Returns a progressive JPEG that repeats its last scan, each time with `before` before it."""
    file = encoded(noise(), "JPEG", progressive=True)
    last = file.rindex(b"\xff\xda")
    return file[:last] + (before + file[last:-2]) * count + file[-2:]


def _behind_scan(data: bytes) -> bytes:
    """Returns the good JPEG with data between its last pixel and its end."""
    return _JPEG[:-2] + data + _JPEG[-2:]


def _short_palette() -> bytes:
    """Returns a PNG whose pixels are of colour 255 of a palette of two."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 3, 0, 0, 0))
    palette = png_chunk(b"PLTE", bytes(6))
    data = _idat((b"\0" + b"\xff" * 8) * 8)
    return b"\x89PNG\r\n\x1a\n" + header + palette + data + png_chunk(b"IEND", b"")


def damaged_files(seed: int, count: int) -> Iterator[bytes]:
    """Yields good files with bytes changed, inserted, removed or cut off: the same for a seed."""
    chance = np.random.default_rng(seed)
    sound = _sound_files()
    for _ in range(count):
        file = bytearray(sound[chance.integers(len(sound))])
        match int(chance.integers(5)):
            case 0:
                del file[chance.integers(1, len(file)) :]
            case 1:
                start = int(chance.integers(len(file)))
                del file[start : start + int(chance.integers(1, 64))]
            case 2:
                start = int(chance.integers(len(file)))
                file[start:start] = chance.bytes(int(chance.integers(1, 64)))
            case _:
                # Headers are where a byte does most.
                end = min(len(file), 200) if chance.random() < 0.5 else len(file)
                for _ in range(int(chance.choice([1, 2, 8]))):
                    file[chance.integers(end)] = int(chance.integers(256))
        yield bytes(file)


@functools.cache
def _sound_files() -> list[bytes]:
    picture = noise(size=24)
    exif = Image.Exif()
    exif[0x112] = 6
    moving = {"save_all": True, "append_images": [noise(1, 24)]}
    sixteen_bits = Image.fromarray(np.arange(576, dtype=np.uint16).reshape(24, 24))
    return [
        encoded(picture, "JPEG", exif=exif),
        encoded(picture, "JPEG", progressive=True),
        encoded(picture.convert("CMYK"), "JPEG"),
        encoded(picture, "PNG", exif=exif),
        encoded(picture.convert("P"), "PNG", transparency=3),
        encoded(sixteen_bits, "PNG"),
        encoded(picture, "PNG", **moving),
        encoded(picture, "WEBP", exif=exif),
        encoded(picture, "WEBP", lossless=True),
        encoded(picture.convert("RGBA"), "WEBP", **moving),
    ]


def pillow_alone(file: bytes) -> None:
    """Decodes as a service without limits would: the control of every limit."""
    with Image.open(io.BytesIO(file)) as image:
        image.getexif()
        image.load()
