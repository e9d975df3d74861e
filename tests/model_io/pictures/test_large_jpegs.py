"""Photographs as phones make them: of up to 200 megapixels, decoded within a bound of memory."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.contract.content import MAX_IMAGE_BYTES
from tandem.errors import ImageTooLarge
from tandem.model_io.pictures.image import MAX_COEFFICIENT_BYTES, decode_image
from tandem.model_io.pictures.image_file import image_file_parts
from tandem.model_io.pictures.image_rules import Fit, ImageRules
from tests.support.pictures.large_jpegs import phone_jpeg
from tests.support.pictures.pictures import claiming_jpeg, encoded, noise

RULES = ImageRules(size=112)
# Sensors of 48, 50, 108 and 200 megapixels.
SIZES = {48: (8064, 6048), 50: (8160, 6112), 108: (12000, 9008), 200: (16384, 12288)}

PROGRAM = """
import sys
from pathlib import Path
from typing import Any
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tests.model_io.pictures.test_large_jpegs import peak_bytes, peak_reset
from tests.support.pictures.hostile_images import pillow_alone
file = Path(sys.argv[2]).read_bytes()
decode = (lambda file: decode_image(file, ImageRules(size=112, is_exact=sys.argv[1] == "exact")))
peak_reset()
before = peak_bytes()
pillow_alone(file) if sys.argv[1] == "Pillow alone" else decode(file)
print(peak_bytes() - before)
"""


def peak_reset() -> None:
    """Forgets the most memory that this process has held before now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Returns the most memory that this process has held since."""
    [line] = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) * 1024


def decoding_peak_bytes(way: str, file: bytes, folder: Path) -> int:
    """Returns the memory that decoding takes in a separate process, without the file's bytes."""
    path = folder / "file.jpg"
    path.write_bytes(file)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, way, str(path)],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[3],
        text=True,
        timeout=120,
    )
    return int(done.stdout)


@pytest.mark.parametrize("way", ["reduced", "exact"])
def test_photographs_stay_within_the_memory_of_25_megapixels(way: str, tmp_path: Path) -> None:
    """In at most 100 MB, of which the file's second copy is most, and in 5 s of a core."""
    file = phone_jpeg(*SIZES[200])
    assert MAX_IMAGE_BYTES > len(file) > 20_000_000

    assert decoding_peak_bytes(way, file, tmp_path) < 100e6


def test_a_progressive_photograph_stays_within_its_limit(tmp_path: Path) -> None:
    file = phone_jpeg(*SIZES[50], progressive=True)

    most_bytes = decoding_peak_bytes("reduced", file, tmp_path)

    assert most_bytes < MAX_COEFFICIENT_BYTES + len(file) + 16e6
    # Such memory is seen by this measure.
    assert most_bytes > 0.9 * image_file_parts(file).held_coefficient_bytes > 130e6


def test_a_decoder_without_reduction_needs_more_memory(tmp_path: Path) -> None:
    assert decoding_peak_bytes("Pillow alone", phone_jpeg(*SIZES[48]), tmp_path) > 140e6


@pytest.mark.parametrize("rules", [RULES, ImageRules(size=224, fit=Fit.CROP, is_exact=True)])
def test_a_large_photograph_looks_like_a_small_one(rules: ImageRules) -> None:
    small = phone_jpeg(2016, 1520)
    large = phone_jpeg(*SIZES[48])

    small_mean, large_mean = (decode_image(file, rules).mean(axis=0) for file in (small, large))

    assert np.abs(small_mean - large_mean).max() < 4
    assert np.ptp(large_mean) > 150


@pytest.mark.parametrize(
    ("size", "options", "unit"),
    [
        (SIZES[108], {"progressive": True}, "coefficients"),
        (SIZES[48], {"progressive": True, "subsampling": "4:4:4"}, "coefficients"),
        ((65_000, 3_240), {}, "pixels"),
    ],
    ids=["progressive", "progressive without subsampling", "over 210 megapixels"],
)
def test_an_oversized_picture_is_refused_by_its_header(
    size: tuple[int, int], options: dict[str, Any], unit: str
) -> None:
    with pytest.raises(ImageTooLarge, match=unit):
        decode_image(claiming_jpeg(*size, **options), RULES)


def test_a_baseline_jpeg_in_several_scans_is_counted_as_a_progressive_one() -> None:
    """Each of its scans has one colour, so a decoder holds them all; it has no such name."""
    file = bytearray(claiming_jpeg(*SIZES[108]))
    scan = file.index(b"\xff\xda")
    # The first scan has the first component alone.
    file[scan : scan + 14] = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0"

    with pytest.raises(ImageTooLarge, match="coefficients"):
        decode_image(bytes(file), RULES)


def test_a_jpeg_of_arithmetic_codes_has_the_limit_of_other_pictures() -> None:
    """Its decoder may work on for long after the last byte that it has read."""
    arithmetic = claiming_jpeg(*SIZES[48]).replace(b"\xff\xc0", b"\xff\xc9", 1)

    with pytest.raises(ImageTooLarge, match="limit is 25,000,000"):
        decode_image(arithmetic, RULES)


def test_a_line_is_not_scaled_to_millions_of_pixels() -> None:
    """A crop scales the shorter side, here 1 pixel, to the model's 224; the control is a square."""
    rules = ImageRules(size=224, fit=Fit.CROP)
    assert decode_image(encoded(noise(), "PNG"), rules).shape == (224, 224, 3)

    for size in ((30_000, 1), (1, 30_000)):
        with pytest.raises(ImageTooLarge, match="shorter side"):
            decode_image(encoded(noise().resize(size), "PNG"), rules)
