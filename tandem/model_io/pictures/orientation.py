"""Turns pictures upright, by EXIF's numbers."""

from collections.abc import Mapping
from typing import Final

from PIL import Image

# All but the first, which is upright.
_TURNS: Final[Mapping[int, Image.Transpose]] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

_SIDEWAYS: Final = range(5, 9)


def turned_upright(image: Image.Image, orientation: int) -> Image.Image:
    """Returns the picture upright; unchanged for 1 and for numbers that are not orientations."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)


def turned_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Returns width and height after the turn, or before it: a turn to the side exchanges them."""
    return size[::-1] if orientation in _SIDEWAYS else size
