"""Makes further views of a picture, so that a head over frozen image tokens sees some variety."""

import math
import random

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_LEAST_AREA = 0.5
_BRIGHTNESS = 0.2


def is_crop(number: int) -> bool:
    """Returns whether this view of a picture is a crop, and not all of it."""
    return number > 1


def picture_view(
    pixels: NDArray[np.uint8], number: int, key: bytes, stretch: float = 0.0
) -> NDArray[np.uint8]:
    """Returns one view of uint8 [H, W, 3]: 0 is the picture, 1 its mirror image, others are crops.

    A crop has at least half of the area, another brightness, and is mirrored half of the time, all
    drawn from `key` and the number, so that a view is the same in every run. It has the picture's
    aspect times a factor from exp(-stretch) to exp(stretch), as far as the picture reaches.

    >>> pixels = np.arange(12, dtype=np.uint8).reshape(1, 4, 3)
    >>> picture_view(pixels, 1, b"")[0, 0].tolist()
    [9, 10, 11]
    """
    if not is_crop(number):
        return pixels[:, ::-1] if number else pixels
    rng = random.Random(f"view/{key.hex()}/{number}")
    height, width = pixels.shape[:2]
    high, wide = _crop_size(height, width, stretch, rng)
    top, left = rng.randint(0, height - high), rng.randint(0, width - wide)
    crop = Image.fromarray(pixels[top : top + high, left : left + wide])
    resized = np.asarray(crop.resize((width, height), Image.Resampling.BICUBIC), np.float32)
    lit = resized * rng.uniform(1 - _BRIGHTNESS, 1 + _BRIGHTNESS)
    view: NDArray[np.uint8] = lit.clip(0, 255).astype(np.uint8)
    return view[:, ::-1] if rng.random() < 0.5 else view


def _crop_size(height: int, width: int, stretch: float, rng: random.Random) -> tuple[int, int]:
    side = rng.uniform(_LEAST_AREA, 1.0) ** 0.5
    wider = math.exp(rng.uniform(-stretch, stretch) / 2) if stretch else 1.0
    high, wide = max(1, round(height * side / wider)), max(1, round(width * side * wider))
    return min(height, high), min(width, wide)
