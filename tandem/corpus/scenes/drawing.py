"""Draws a scene on a white square of 4 x 4 cells, at most one drawing per cell, jittered."""

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tandem.corpus.emoji import open_drawings
from tandem.corpus.records import ImageSource
from tandem.corpus.scenes.scene import Group, Scene

SCENE_SIZE = 112
_CELL = 28
_SIZES = (22, 24, 26, 28)

_ROWS = {"top": (0, 1), "bottom": (2, 3)}
_COLUMNS = {"left": (0, 1), "right": (2, 3)}


@dataclass(frozen=True, slots=True)
class PlacedDrawing:
    """Places one drawing of a group in a square, in pixels."""

    group: Group
    x: int
    y: int
    size: int


def place_drawings(scene: Scene) -> Iterator[PlacedDrawing]:
    """Yields every drawing of the scene, none overlapping, always at the same position."""
    rng = random.Random(scene.place_seed)
    for area, group in zip(scene.layout.value, scene.groups, strict=True):
        size = rng.choice(_SIZES)
        for row, column in rng.sample(_cells(area), group.count):
            slack = _CELL - size
            x = column * _CELL + rng.randint(0, slack)
            y = row * _CELL + rng.randint(0, slack)
            yield PlacedDrawing(group, x, y, size)


def draw_scene(scene: Scene) -> Image.Image:
    """Returns the picture, RGB, SCENE_SIZE square; the same scene gives the same pixels."""
    picture = Image.new("RGB", (SCENE_SIZE, SCENE_SIZE), "white")
    for placed in place_drawings(scene):
        drawing = _scaled(placed.group.noun.codepoints, placed.group.style, placed.size)
        picture.paste(drawing, (placed.x, placed.y))
    return picture


@dataclass(frozen=True, slots=True)
class ScenePng(ImageSource):
    """Draws its scene when it is read."""

    scene: Scene

    def __str__(self) -> str:
        return "drawn when it is read"

    def read(self) -> bytes:
        """Returns the picture as a PNG file."""
        file = io.BytesIO()
        # Level 1 takes a third of the default's time for a tenth more bytes.
        draw_scene(self.scene).save(file, "PNG", compress_level=1)
        return file.getvalue()


def scene_pixels(scene: Scene) -> NDArray[np.uint8]:
    """Returns the picture as uint8 [SCENE_SIZE, SCENE_SIZE, 3]."""
    return np.asarray(draw_scene(scene))


@lru_cache(maxsize=8192)
def _scaled(codepoints: str, style: str, size: int) -> Image.Image:
    original = Image.open(io.BytesIO(open_drawings().webp_bytes(codepoints, style)))
    return original.convert("RGB").resize((size, size), Image.Resampling.LANCZOS)


def _cells(area: str) -> list[tuple[int, int]]:
    rows: tuple[int, ...] = range(4)  # type: ignore[assignment]
    columns: tuple[int, ...] = range(4)  # type: ignore[assignment]
    for word in area.split():
        rows = _ROWS.get(word, rows)
        columns = _COLUMNS.get(word, columns)
    return [(row, column) for row in rows for column in columns]
