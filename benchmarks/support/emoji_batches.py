"""Draws batches of emoji with captions, to train small published models on.

Shapes: N drawings, B batch, S pixels per side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tandem.corpus.emoji import emoji_records
from tandem.corpus.records import Record

# A drawing is moved by up to this many pixels, and its colours by up to this factor.
_SHIFT = 4
_TINT = 0.2


@dataclass(frozen=True, slots=True)
class EmojiBatches:
    """Holds the drawings of the train split in memory, with their captions."""

    pixels: NDArray[np.uint8]
    """[N, S, S, 3]"""
    captions: Sequence[Sequence[str]]
    families: Sequence[Sequence[int]]
    """The rows of each concept."""

    @classmethod
    def read(cls, size: int) -> "EmojiBatches":
        """Reads every drawing of the train split at `size` pixels."""
        records = list(emoji_records("train"))
        rows: dict[str, list[int]] = {}
        for row, record in enumerate(records):
            rows.setdefault(record.family, []).append(row)
        pixels = np.stack([drawing_pixels(record, size) for record in records])
        captions = [[caption.text for caption in record.captions] for record in records]
        return cls(pixels, captions, list(rows.values()))

    def all_captions(self) -> list[str]:
        """Returns every distinct caption, in order."""
        return sorted({text for captions in self.captions for text in captions})

    def draw(self, generator: Generator, count: int) -> tuple[Tensor, list[str]]:
        """Returns pictures uint8 [B, S, S, 3] and a caption of each, of `count` concepts."""
        chosen = generator.choice(len(self.families), count, replace=False)
        rows = [int(generator.choice(self.families[family])) for family in chosen]
        texts = [str(generator.choice(self.captions[row])) for row in rows]
        pixels = np.stack([_varied(self.pixels[row], generator) for row in rows])
        return torch.from_numpy(pixels), texts


def drawing_pixels(record: Record, size: int) -> NDArray[np.uint8]:
    """Returns a record's picture as RGB [S, S, 3]."""
    if record.image is None:
        raise ValueError(f"{record.record_id} has no picture")
    with Image.open(BytesIO(record.image.read())) as image:
        square = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(square)


def _varied(pixels: NDArray[np.uint8], generator: Generator) -> NDArray[np.uint8]:
    right, down = (int(step) for step in generator.integers(-_SHIFT, _SHIFT + 1, 2))
    # What leaves on one side comes in on the other, where every drawing is white.
    moved = np.roll(pixels, (down, right), (0, 1)).astype(np.float32)
    tint = generator.uniform(1 - _TINT, 1 + _TINT, 3).astype(np.float32)
    # White stays white.
    return (255 - np.clip((255 - moved) * tint, 0, 255)).astype(np.uint8)
