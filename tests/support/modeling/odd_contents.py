"""Texts and picture files of every odd kind, for comparing two ways of reading them."""

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageOps

_WORDS = ("two dogs at a fence", "Dva psi u plotu", "a DOG, a violin!", "Žluťoučký kůň úpěl")
_ODD_TEXTS = (
    "TWO DOGS AT A FENCE",
    "PŘÍLIŠ ŽLUŤOUČKÝ KŮŇ ÚPĚL ĎÁBELSKÉ ÓDY",
    "🐕🐕 a 🎻",
    " ".join(["two dogs"] * 250),
    " ".join(f"word{number}" for number in range(500)),
    "a",
    "it's the dog's; they've 3 of 'em (well: 2)…",
    "e\u0301te\u0301 ﬁne Ｔｗｏ",
    "<|endoftext|> two dogs </s> <pad>",
    "\t two \n dogs \u200b ",
)


def odd_texts(count: int = 100) -> list[str]:
    """Returns upper case, Czech, 500 words, emoji, and texts of every length up to 90 words."""
    longer = [
        " ".join(_WORDS[number % len(_WORDS)] for _ in range(1 + number // 4))
        for number in range(count - len(_ODD_TEXTS))
    ]
    return [*_ODD_TEXTS, *longer]


def odd_pictures(count: int = 100) -> list[tuple[bytes, Image.Image]]:
    """Returns picture files, each with what it shows: upright, 8 bits, alpha channel not blended.

    They are turned by EXIF, of one pixel, with alpha or a palette, CMYK, grey or of 16 bits, in
    JPEG, PNG and WebP, wider and taller.
    """
    return [next(_pictures(number)) for number in range(count)]


def _pictures(number: int) -> Iterator[tuple[bytes, Image.Image]]:
    random = np.random.default_rng(number)
    width, height = (int(side) for side in random.integers(20, 150, 2))
    if number % 10 == 0:
        width, height = ((1, 1), (1, 90), (90, 1), (400, 32), (32, 32))[number // 10 % 5]
    # Smooth, as photographs are: noise of single pixels is what JPEG and filters disagree most on.
    coarse = random.integers(0, 256, (5, 5, 4), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    kind = number % 10
    if kind in (1, 2):
        yield _turned(picture.convert("RGB"), 1 + number // 10 % 8)
    elif kind == 3:
        yield _of(picture, "PNG")
    elif kind == 4:
        yield _of(picture.convert("RGB").convert("CMYK"), "JPEG")
    elif kind == 5:
        yield _of(picture.convert("L"), "JPEG" if number % 20 == 5 else "PNG")
    elif kind == 6:
        grey = np.asarray(picture.convert("L")).astype(np.uint16) * 257
        file = io.BytesIO()
        Image.fromarray(grey).save(file, "PNG")
        # A hub processor clips 16 bits at 255: nearly white. Both are compared by what is shown.
        yield file.getvalue(), Image.fromarray((grey // 257).astype(np.uint8))
    elif kind == 7:
        yield _of(picture.quantize(16), "PNG")
    elif kind == 8:
        yield _of(picture, "WEBP")
    else:
        yield _of(picture.convert("RGB"), "JPEG")


def _of(picture: Image.Image, file_format: str) -> tuple[bytes, Image.Image]:
    file = io.BytesIO()
    picture.save(file, file_format)
    return file.getvalue(), Image.open(file)


def _turned(picture: Image.Image, orientation: int) -> tuple[bytes, Image.Image]:
    exif = Image.Exif()
    exif[0x112] = orientation
    file = io.BytesIO()
    picture.save(file, "JPEG", exif=exif.tobytes())
    return file.getvalue(), ImageOps.exif_transpose(Image.open(file))
