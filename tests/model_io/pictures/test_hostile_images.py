"""Files made to do harm, one by one: refused by name, soon, and without taking memory."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tandem.errors import ImageTooLarge, TandemError
from tandem.model_io.pictures import image as image_module
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_file import image_file_parts
from tandem.model_io.pictures.image_rules import ImageRules
from tests.support.pictures.hostile_images import MIB, TOO_LARGE, hostile_images
from tests.support.pictures.pictures import encoded, noise

SIZE = 112
RULES = ImageRules(size=SIZE)
ORIENTATION_TAG = 0x112


def test_hostile_files_have_their_outcomes_in_time() -> None:
    """What a header shows is refused in 50 ms of a core, and nothing takes more than half a second;
    the machine may be busy, so twice that is allowed, and three tries.
    """
    for name, hostile in hostile_images().items():
        bound_seconds = 0.1 if hostile.outcome == TOO_LARGE else 1.0
        for left_count in (2, 1, 0):
            start_time = time.process_time()

            outcome = outcome_of(hostile.file)

            seconds = time.process_time() - start_time
            assert outcome == hostile.outcome, name
            if seconds < bound_seconds:
                break
            assert left_count, (name, seconds)


def outcome_of(file: bytes) -> str:
    """Returns the reason of the refusal, or nothing where the file is decoded."""
    try:
        pixels = decode_image(file, RULES)
    except TandemError as error:
        return error.reason
    assert pixels.shape == (SIZE, SIZE, 3)
    return ""


PROGRAM = """
import sys, warnings
from tandem.errors import TandemError
from tandem.model_io.pictures.image import decode_image
from tests.support.pictures.hostile_images import hostile_images, pillow_alone
from tests.model_io.pictures.test_hostile_images import RULES, address_bytes
files = [hostile.file for hostile in hostile_images().values()]
decode = lambda file: decode_image(file, RULES)
if sys.argv[1] == "Pillow alone":
    files, decode = [hostile_images()["PNG of 13,000 squared"].file], pillow_alone
warnings.simplefilter("ignore")
before = address_bytes("VmSize")
for file in files:
    try:
        decode(file)
    except (TandemError, Exception):
        pass
print(address_bytes("VmPeak") - before)
"""


# One arena, as each reserves 64 MiB. What is freed is given back, or it would hide what follows.
ADDRESSES_AS_HELD = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
}


@pytest.mark.parametrize("way", ["ours", "Pillow alone"])
def test_hostile_files_take_no_memory(way: str) -> None:
    """At their worst moment they all take less than 64 MiB; without limits, one takes more.

    In addresses, of which a machine without memory takes none away and gives none back.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | ADDRESSES_AS_HELD,
        text=True,
        timeout=120,
    )

    assert (int(done.stdout) < 64 * MIB) == (way == "ours")


def address_bytes(name: str) -> int:
    """Returns how many addresses this process has (VmSize), or has had at most (VmPeak)."""
    [line] = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)
    ]
    return int(line.split()[1]) * 1024


def corners(pixels: np.ndarray) -> list[int]:
    """Returns the levels of the four corners, row by row."""
    return [int(pixels[y, x, 0]) for y in (5, -6) for x in (5, -6)]


def test_each_orientation_as_pillow_would_turn_it() -> None:
    """The levels of the corners differ by 60; 0 and 9 are not orientations."""
    levels = np.kron(np.array([[40, 100], [160, 220]], np.uint8), np.ones((56, 56), np.uint8))
    picture = Image.fromarray(levels).convert("RGB")
    expected = {
        **{number: [40, 100, 160, 220] for number in (0, 1, 9)},
        2: [100, 40, 220, 160],
        3: [220, 160, 100, 40],
        4: [160, 220, 40, 100],
        5: [40, 160, 100, 220],
        6: [160, 40, 220, 100],
        7: [220, 100, 160, 40],
        8: [100, 220, 40, 160],
    }
    exif = Image.Exif()
    for file_format, numbers in (("JPEG", [*expected]), ("PNG", [6]), ("WEBP", [8])):
        for number in numbers:
            exif[ORIENTATION_TAG] = number
            pixels = decode_image(encoded(picture, file_format, exif=exif, lossless=True), RULES)

            turned = corners(pixels)
            np.testing.assert_allclose(turned, expected[number], atol=2, err_msg=f"{number}")


@pytest.mark.parametrize("order", ["little", "big"])
def test_orientation_in_either_byte_order(order: str) -> None:
    is_little = order == "little"

    def integer(value: int, count: int) -> bytes:
        return value.to_bytes(count, "little" if is_little else "big")

    for kind, width in ((1, 1), (3, 2), (4, 4)):
        entry = integer(ORIENTATION_TAG, 2) + integer(kind, 2) + integer(1, 4)
        tiff = (
            (b"II*\0" if is_little else b"MM\0*")
            + integer(8, 4)
            + integer(1, 2)
            + entry
            + integer(6, width).ljust(4, b"\0")
            + bytes(4)
        )
        for exif in (tiff, b"Exif\0\0" + tiff):
            file = encoded(noise(), "WEBP", exif=exif)
            assert image_file_parts(file).orientation == 6


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_removed_parts_change_no_pixel(file_format: str) -> None:
    picture = noise()
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 1
    bare = encoded(picture, file_format)
    options = {"comment": b"a comment"} if file_format == "JPEG" else {}
    full = encoded(picture, file_format, exif=exif, icc_profile=bytes(70_000), **options)

    parts = image_file_parts(full)

    assert len(full) > len(bare) + 100
    assert parts.decodable_bytes == bare
    assert image_file_parts(bare).decodable_bytes == bare


@pytest.mark.parametrize("options", [{"progressive": True}, {"restart_marker_blocks": 1}])
def test_data_after_a_jpeg_is_not_stored(options: dict[str, Any]) -> None:
    """It is not part of the picture, and no decoder shall read a scan that was not counted."""
    file = encoded(noise(size=64), "JPEG", **options)
    tail = np.random.default_rng(0).bytes(4 * MIB)

    assert image_file_parts(file + tail) == image_file_parts(file)
    np.testing.assert_array_equal(decode_image(file + tail, RULES), decode_image(file, RULES))


def test_a_picture_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = encoded(noise(size=600), "PNG")
    assert decode_image(file, RULES).shape == (SIZE, SIZE, 3)

    monkeypatch.setattr(image_module, "MAX_DECODE_SECONDS", 0)

    with pytest.raises(ImageTooLarge, match="seconds of decoding"):
        decode_image(file, RULES)


def test_a_value_at_the_limit_passes_and_one_above_fails() -> None:
    for size in ((65_535, 1), (5_000, 5_000)):
        pixels = decode_image(encoded(Image.new("1", size), "PNG"), RULES)
        assert pixels.shape == (SIZE, SIZE, 3)

    for size in ((65_536, 1), (5_000, 5_001)):
        with pytest.raises(ImageTooLarge):
            decode_image(encoded(Image.new("1", size), "PNG"), RULES)
