"""A JPEG that lacks only its end marker is read as viewers show it; one cut short is refused."""

import re
import time

import numpy as np
import pytest
from PIL import Image

from tandem.errors import ImageTooLarge, ImageUnreadable
from tandem.model_io.pictures import image as image_module
from tandem.model_io.pictures.image import decode_image, picture_size
from tandem.model_io.pictures.image_rules import Fit, ImageRules
from tests.support.pictures.pictures import claiming_jpeg, encoded, noise

RULES = ImageRules(size=64, fit=Fit.SQUASH, is_exact=True)
OPTIONS: dict[str, dict[str, object]] = {
    "baseline": {},
    "colours in full": {"subsampling": 0},
    "progressive": {"progressive": True},
    "restarts after each block": {"restart_marker_blocks": 1},
    "restarts after each row": {"restart_marker_rows": 1},
    "progressive with restarts": {"progressive": True, "restart_marker_rows": 1},
}


def smooth(width: int, height: int, mode: str) -> Image.Image:
    values = np.random.default_rng(width).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((width, height)).convert(mode)


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, "RGB") for name in OPTIONS), ("baseline", "L"), ("progressive", "CMYK")],
)
def test_a_file_without_its_end_marker_is_the_same_picture(name: str, mode: str) -> None:
    """Without all of it, without its second byte, and with zeros in its place, as recovered."""
    for width, height in [(1, 1), (17, 33), (90, 60)]:
        file = encoded(smooth(width, height, mode), "JPEG", **OPTIONS[name])
        expected = decode_image(file, RULES)
        for unended in (file[:-2], file[:-1], file[:-2] + bytes(600)):
            np.testing.assert_array_equal(decode_image(unended, RULES), expected)
            assert picture_size(unended) == (width, height)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_cut_short_is_refused_unless_every_pixel_is_there(name: str) -> None:
    file = encoded(smooth(90, 60, "RGB"), "JPEG", **OPTIONS[name])
    expected = decode_image(file, RULES)
    refused_count = 0
    for cut in (*range(3, 24), 60, 200, 400):
        try:
            pixels = decode_image(file[:-cut], RULES)
        except ImageUnreadable:
            refused_count += 1
        else:
            np.testing.assert_array_equal(pixels, expected)
            assert cut < 24
    assert refused_count > 12
    with pytest.raises(ImageUnreadable, match="cut short: a JPEG without its end"):
        decode_image(file[: -len(file) // 3], RULES)


def test_a_progressive_file_that_ends_between_scans_is_refused() -> None:
    """A viewer shows it with fewer details, which is another picture."""
    file = encoded(noise(), "JPEG", progressive=True)
    starts = [found.start() for found in re.finditer(rb"\xff\xda", file)]
    assert len(starts) > 3
    for start in starts[1:]:
        with pytest.raises(ImageUnreadable):
            decode_image(file[:start], RULES)
    # The control: with an end marker a decoder takes it, and nothing says that scans are missing.
    assert np.any(
        decode_image(file[: starts[-1]] + b"\xff\xd9", RULES) != decode_image(file, RULES)
    )


def test_all_decodings_of_a_file_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    file = encoded(noise(size=400), "JPEG")[:-2]
    now = iter(range(1_000))
    monkeypatch.setattr(time, "thread_time", lambda: next(now))
    monkeypatch.setattr(image_module, "MAX_DECODE_SECONDS", 4)
    with pytest.raises(ImageTooLarge, match="seconds of decoding"):
        decode_image(file, RULES)


def test_a_large_claim_without_an_end_is_refused_by_its_header() -> None:
    with pytest.raises(ImageTooLarge):
        decode_image(claiming_jpeg(65_000, 65_000)[:-2], RULES)
    with pytest.raises(ImageUnreadable, match="cut short"):
        decode_image(claiming_jpeg(3_000, 2_000)[:-2], RULES)
