"""Image files into pixels: what comes out of good ones, and how bad ones are refused."""

import io
import random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tandem.contract.content import ImageContent, TextContent
from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded, ImageTooLarge, ImageUnreadable
from tandem.model_io.pictures.image import decode_image, decoding_bytes
from tandem.model_io.pictures.image_rules import ImageRules
from tests.support.pictures.hostile_images import damaged_files
from tests.support.pictures.pictures import (
    BLACK,
    BLUE,
    RED,
    WHITE,
    encoded,
    halves,
    noise,
    plain,
    png_chunk,
    png_chunks,
)

SIZE = 112
RULES = ImageRules(size=SIZE)
ORIENTATION_TAG = 0x112
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
ODD_KINDS = (b"PLTE", b"tRNS", b"IDAT", b"IHDR", b"acTL", b"fcTL", b"CgBI")


def colour_at(pixels: np.ndarray, x: int, y: int) -> tuple[int, ...]:
    return tuple(int(value) for value in pixels[y, x])


def is_near(
    pixels: np.ndarray, x: int, y: int, colour: tuple[int, ...], tolerance: int = 8
) -> bool:
    """Says whether a pixel has the colour, within what JPEG makes of it."""
    return all(
        abs(a - b) <= tolerance for a, b in zip(colour_at(pixels, x, y), colour, strict=True)
    )


@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_a_picture_of_the_models_size_is_returned_bit_for_bit(file_format: str) -> None:
    picture = noise(size=SIZE)

    pixels = decode_image(encoded(picture, file_format, lossless=True), RULES)

    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, np.asarray(picture))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
def test_wide_picture_is_centred_between_white_bars(file_format: str) -> None:
    """60 x 40 pixels become 112 x 75, with 18 white rows above."""
    pixels = decode_image(encoded(halves(), file_format), RULES)

    assert pixels.shape == (SIZE, SIZE, 3)
    assert colour_at(pixels, 20, 17) == WHITE
    assert colour_at(pixels, 20, 94) == WHITE
    assert is_near(pixels, 20, 56, RED)
    assert is_near(pixels, 90, 56, BLUE)


def test_16_bit_picture_with_exif_is_turned_too() -> None:
    """The way through NumPy that 16 bits take does not lose the orientation."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    grey = np.zeros((40, 60), dtype=np.uint16)
    grey[:, 30:] = 65535

    pixels = decode_image(encoded(Image.fromarray(grey), "PNG", exif=exif), RULES)

    assert colour_at(pixels, 56, 20) == BLACK
    assert colour_at(pixels, 56, 90) == WHITE


# Pillow remarks on odd files; here its errors are our business, and its remarks are not.
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_broken_exif_does_not_refuse_the_picture() -> None:
    file = encoded(plain(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff garbage")

    assert is_near(decode_image(file, RULES), 56, 56, RED)


@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_transparent_pixels_are_white_over_any_colour(file_format: str) -> None:
    picture = plain((0, 0, 0, 0), (SIZE // 2, SIZE // 2), "RGBA")
    picture.paste((255, 0, 0, 255), (0, 0, SIZE // 4, SIZE // 2))

    pixels = decode_image(encoded(picture, file_format, lossless=True, exact=True), RULES)

    assert colour_at(pixels, 100, 56) == WHITE
    assert colour_at(pixels, 10, 56) == RED
    # On the seam the red fades into white, so red never falls.
    assert pixels[56, :, 0].min() == 255


def test_half_transparent_black_is_grey() -> None:
    file = encoded(plain((0, 0, 0, 128), (SIZE, SIZE), "RGBA"), "PNG")

    assert colour_at(decode_image(file, RULES), 56, 56) == (127, 127, 127)


@pytest.mark.parametrize(
    ("picture", "options", "colour"),
    [
        (plain(RED).convert("P"), {}, RED),
        (plain(RED).quantize(2), {"transparency": 0}, WHITE),
        (plain(RED), {"transparency": RED}, WHITE),
        (plain((77,), mode="L"), {"transparency": 77}, WHITE),
        (plain((255,), mode="1"), {}, WHITE),
        (plain((77,), mode="L"), {}, (77, 77, 77)),
        (plain((0, 0), mode="LA"), {}, WHITE),
        (Image.fromarray(np.full((40, 40), 0x4D4D, dtype=np.uint16)), {}, (77, 77, 77)),
    ],
    ids=["palette", "clear palette", "clear RGB", "clear grey", "1 bit", "grey", "LA", "16 bits"],
)
def test_every_kind_of_png(
    picture: Image.Image, options: dict[str, object], colour: tuple[int, ...]
) -> None:
    assert colour_at(decode_image(encoded(picture, "PNG", **options), RULES), 56, 56) == colour


def test_cmyk_jpeg() -> None:
    file = encoded(plain((0, 255, 255, 0), mode="CMYK"), "JPEG")

    assert is_near(decode_image(file, RULES), 56, 56, RED, tolerance=12)


@pytest.mark.parametrize("file_format", ["WEBP", "PNG"])
def test_animation_gives_its_first_frame(file_format: str) -> None:
    file = encoded(plain(RED), file_format, save_all=True, append_images=[plain(BLUE)])

    assert is_near(decode_image(file, RULES), 56, 56, RED)


def test_a_png_that_lacks_its_palette_is_unreadable() -> None:
    """Pillow asserts that there is one, and one such picture failed its whole batch."""
    whole = encoded(plain(RED).convert("P"), "PNG")
    start = whole.index(b"PLTE") - 4
    end = start + 12 + int.from_bytes(whole[start : start + 4])
    assert decode_image(whole, RULES).shape == (SIZE, SIZE, 3)

    with pytest.raises(ImageUnreadable, match="it has no palette"):
        decode_image(whole[:start] + whole[end:], RULES)


def test_pngs_of_damaged_chunks_are_read_or_refused_by_name() -> None:
    """With the checksums that the damaged chunks should have, so that they are read."""
    dice = random.Random(20261128)
    whole = [
        encoded(plain(RED).convert("P"), "PNG", transparency=0),
        encoded(noise(size=8), "PNG"),
        encoded(plain((0, 0), mode="LA"), "PNG"),
    ]
    refused = 0
    for _ in range(600):
        chunks = png_chunks(dice.choice(whole))
        number = dice.randrange(len(chunks))
        kind, data = chunks[number]
        match dice.randrange(4):
            case 0 if data:
                place = dice.randrange(len(data))
                other = dice.choice((0, 1, 2, 3, 4, 8, 16, 255))
                chunks[number] = (kind, data[:place] + bytes([other]) + data[place + 1 :])
            case 1:
                del chunks[number]
            case 2:
                chunks.insert(number, (dice.choice(ODD_KINDS), dice.randbytes(dice.randrange(7))))
            case _:
                dice.shuffle(chunks)
        file = PNG_SIGNATURE + b"".join(png_chunk(*chunk) for chunk in chunks)
        try:
            decode_image(file, RULES)
        except (ImageUnreadable, ImageTooLarge):
            refused += 1

    assert 200 < refused < 590


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_damaged_files_are_read_or_refused_by_name() -> None:
    """Two thousand damaged files raise our two errors and no other."""
    outcomes = {"read": 0, "refused": 0}
    for file in damaged_files(7, 2_000):
        try:
            pixels = decode_image(file, RULES)
        except (ImageUnreadable, ImageTooLarge):
            outcomes["refused"] += 1
        else:
            assert pixels.shape == (SIZE, SIZE, 3)
            outcomes["read"] += 1

    # Both ways were tried in earnest.
    assert min(outcomes.values()) > 200


def photo(width: int, height: int) -> Image.Image:
    """Returns a picture with soft shapes and some noise, as a camera would take it."""
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, 256, (height // 40, width // 40, 3), dtype=np.uint8)
    soft = Image.fromarray(shapes).resize((width, height), Image.Resampling.BICUBIC)
    noisy = np.asarray(soft).astype(np.int16) + rng.integers(-6, 7, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def filtered_whole(file: bytes, size: tuple[int, int]) -> np.ndarray:
    """Returns the picture scaled by the filter alone, from every one of its pixels."""
    with Image.open(io.BytesIO(file)) as image:
        return np.asarray(image.resize(size, Image.Resampling.BICUBIC)).astype(int)


@pytest.mark.parametrize(("file_format", "width"), [("JPEG", 200), ("JPEG", 620), ("PNG", 620)])
def test_a_picture_up_to_five_and_a_half_times_too_large_is_filtered_whole(
    file_format: str, width: int
) -> None:
    file = encoded(photo(width, width // 2), file_format)

    pixels = decode_image(file, RULES)

    assert np.array_equal(pixels[28:84], filtered_whole(file, (SIZE, SIZE // 2)))


@pytest.mark.parametrize(
    ("size", "file_format"),
    [((640, 320), "PNG"), ((1920, 960), "JPEG"), ((1920, 960), "WEBP"), ((3000, 1500), "JPEG")],
)
def test_a_larger_picture_is_hardly_another(file_format: str, size: tuple[int, int]) -> None:
    """Blocks are averaged before the filter: a level or less, 8 where it is most."""
    file = encoded(photo(*size), file_format)

    pixels = decode_image(file, RULES)

    difference = np.abs(pixels[28:84] - filtered_whole(file, (SIZE, SIZE // 2)))
    assert difference.mean() < 1
    assert difference.max() <= 8


def test_decoding_stops_at_the_deadline() -> None:
    file = encoded(noise(size=2000), "PNG")
    assert decode_image(file, RULES, None, Deadline.after(60)).shape == (SIZE, SIZE, 3)

    with pytest.raises(DeadlineExceeded):
        decode_image(file, RULES, None, Deadline.after(-1))


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 5}, {"exif": b"Exif\0\0"}])
def test_the_memory_of_a_webp_is_known_by_its_header(options: dict[str, Any]) -> None:
    file = encoded(plain(size=(300, 200)), "WEBP", **options)

    assert decoding_bytes(ImageContent(file)) == 300 * 200 * 16
    assert decoding_bytes(ImageContent(file[:25])) == 0
    assert decoding_bytes(ImageContent(encoded(plain(), "PNG"))) == 0
    assert decoding_bytes(TextContent("RIFF....WEBP")) == 0
