"""A model's rules for pictures: the same pixels as the operations of hub processors in Pillow."""

import base64
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import Filter, Fit, ImageRules, Transparency
from tandem.model_io.pictures.picture_fit import scaled_size

SIZE = 32
SHAPES = [(200, 77), (77, 200), (20, 11)]


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture of random pixels."""
    random = np.random.default_rng(width * 1000 + height)
    shape = (height, width, len(mode))
    return Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8), mode)


def png(picture: Image.Image, orientation: int = 1) -> bytes:
    """The picture's file."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    return file.getvalue()


def centre_cropped(picture: Image.Image, shorter: int, size: int) -> NDArray[np.uint8]:
    """What CLIP's processor does: the shorter side scaled, the rest rounded down, then slices."""
    width, height = picture.size
    if width <= height:
        target = (shorter, int(shorter * height / width))
    else:
        target = (int(shorter * width / height), shorter)
    pixels = np.asarray(picture.resize(target, Image.Resampling.BICUBIC))
    top, left = (pixels.shape[0] - size) // 2, (pixels.shape[1] - size) // 2
    return pixels[top : top + size, left : left + size]


@pytest.mark.parametrize(
    ("shape", "resize_to"), [*((each, 37) for each in SHAPES), ((33, 32), None)]
)
def test_crop_is_clips(shape: tuple[int, int], resize_to: int | None) -> None:
    rules = ImageRules(size=SIZE, fit=Fit.CROP, resize_to=resize_to, is_exact=True)

    pixels = decode_image(png(noise(*shape)), rules)

    expected = centre_cropped(noise(*shape), resize_to or SIZE, SIZE)
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("name", list(Filter))
def test_squash_is_siglips(name: Filter) -> None:
    shape = (200, 77)
    rules = ImageRules(size=SIZE, fit=Fit.SQUASH, filter=name, is_exact=True)

    pixels = decode_image(png(noise(*shape)), rules)

    filter_ = Image.Resampling[name.upper()]
    np.testing.assert_array_equal(pixels, np.asarray(noise(*shape).resize((SIZE, SIZE), filter_)))


@pytest.mark.parametrize("sides", [(48, 48), (37, 60), (32, 33)])
def test_a_squashed_picture_may_be_cut(sides: tuple[int, int]) -> None:
    """To its centre, as a hub processor with a width, a height and a crop does."""
    shape = (77, 200)
    rules = ImageRules(size=SIZE, fit=Fit.SQUASH, squash_to=sides, is_exact=True)
    rules.check()

    pixels = decode_image(png(noise(*shape)), rules)

    whole = np.asarray(noise(*shape).resize(sides, Image.Resampling.BICUBIC))
    left, top = (sides[0] - SIZE) // 2, (sides[1] - SIZE) // 2
    np.testing.assert_array_equal(pixels, whole[top : top + SIZE, left : left + SIZE])


@pytest.mark.parametrize(
    ("fit", "sides"),
    [(Fit.CROP, (40, 40)), (Fit.SQUASH, (40,)), (Fit.SQUASH, (40, 31))],
)
def test_impossible_sides_are_refused(fit: Fit, sides: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="squash_to"):
        ImageRules(size=SIZE, fit=fit, squash_to=sides).check()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_exact_pictures_are_blended_before_they_are_scaled(mode: str) -> None:
    """As transformers does; blended afterwards, colours at edges are others."""
    picture = noise(90, 70, "RGBA").convert(mode)
    rules = ImageRules(size=SIZE, fit=Fit.SQUASH, is_exact=True)

    pixels = decode_image(png(picture), rules)

    transparent = picture.convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    blended = Image.alpha_composite(white, transparent).convert("RGB")
    expected = np.asarray(blended.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(pixels, expected)
    after = transparent.resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    late = Image.alpha_composite(Image.new("RGBA", after.size, "white"), after).convert("RGB")
    assert np.any(np.asarray(late) != expected)


@pytest.mark.parametrize(
    ("rules", "orientation"),
    [
        (ImageRules(size=SIZE, fit=Fit.SQUASH, squash_to=(37, 60)), 6),
        (ImageRules(size=SIZE), 8),
        *((ImageRules(size=SIZE, fit=Fit.CROP, resize_to=37), number) for number in range(2, 9)),
    ],
)
def test_pictures_that_are_turned_after_they_are_scaled_have_the_same_sides(
    rules: ImageRules, orientation: int
) -> None:
    """As photographs over 25 megapixels are: width and height are those of the upright picture."""
    upright = noise(61, 90).resize((150, 90))
    stored = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}.get(orientation)
    lying = upright if stored is None else upright.transpose(Image.Transpose(stored))

    turned = decode_image(png(lying, orientation), rules).astype(int)

    # Pillow rounds between both directions, whose order is the other one.
    np.testing.assert_allclose(turned, decode_image(png(upright), rules).astype(int), atol=2)


def test_exact_pictures_are_turned_before_they_are_scaled() -> None:
    """As hub processors do: a picture on its side gives the same pixels as one stored upright."""
    rules = ImageRules(size=SIZE, fit=Fit.CROP, is_exact=True)
    upright = noise(150, 90)

    turned = decode_image(png(upright.transpose(Image.Transpose.ROTATE_90), 6), rules)

    np.testing.assert_array_equal(turned, decode_image(png(upright), rules))


def test_transparency_is_blended_or_ignored() -> None:
    hidden = Image.new("RGBA", (SIZE, SIZE), (10, 20, 30, 0))
    ignored = ImageRules(size=SIZE, fit=Fit.SQUASH, transparency=Transparency.IGNORE)

    assert decode_image(png(hidden), ImageRules(size=SIZE)).min() == 255
    assert (decode_image(png(hidden), ignored) == (10, 20, 30)).all()


def open_clips_pictures() -> dict[str, bytes]:
    """Returns PNGs of each mode in which a resize is not that of RGB."""
    random = np.random.RandomState(0)

    def numbers(*shape: int) -> NDArray[np.uint8]:
        return random.randint(0, 256, shape, dtype=np.uint8)

    indices = (numbers(30, 40) // 16).tobytes()
    made = {
        "RGBA": Image.fromarray(numbers(30, 40, 4)),
        "LA": Image.fromarray(numbers(30, 40, 2)),
        "1": Image.fromarray(numbers(30, 40) > 127),
    }
    for name in ("P", "P with transparency"):
        made[name] = Image.frombytes("P", (40, 30), indices)
        made[name].putpalette(numbers(48).tobytes())
    made["P with transparency"].info["transparency"] = bytes(range(0, 256, 16))
    return {name: png(picture) for name, picture in made.items()}


@pytest.mark.parametrize(
    ("mode", "rules"),
    [
        ("shortest", ImageRules(size=8, fit=Fit.CROP, is_exact=True)),
        ("squash", ImageRules(size=8, fit=Fit.SQUASH, filter=Filter.BILINEAR, is_exact=True)),
    ],
)
def test_open_clips_pictures_are_scaled_before_they_become_rgb(
    mode: str, rules: ImageRules
) -> None:
    """It scales before it converts to RGB: its own pixels, computed once, are stored."""
    stored = json.loads(Path(__file__).with_name("open_clip_pixels.json").read_text())
    rules = replace(rules, transparency=Transparency.IGNORE)
    for name, file in open_clips_pictures().items():
        expected = np.frombuffer(base64.b64decode(stored[f"{name}, {mode}"]), np.uint8)
        np.testing.assert_array_equal(decode_image(file, rules).ravel(), expected, name)


def test_an_exact_picture_is_filtered_at_full_size() -> None:
    """Otherwise blocks are averaged first: near, but not the same."""
    picture = noise(700, 700)
    fast, exact = (
        decode_image(png(picture), ImageRules(size=SIZE, fit=Fit.SQUASH, is_exact=is_exact))
        for is_exact in (False, True)
    )

    expected = np.asarray(picture.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(exact, expected)
    assert 0 < np.abs(fast.astype(int) - exact).max() < 32


def test_a_thin_picture_has_no_side_of_zero() -> None:
    assert scaled_size((4000, 1), ImageRules(size=SIZE)) == (SIZE, 1)
