"""Gives image tokens of the pictures that a run trains on, by number.

Shapes: N pictures, B rows, R image tokens, D token width.
"""

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tandem.corpus.records import Record
from tandem.modeling.image_sources.region_tokens import RegionFile


class HeldImages:
    """Holds the tokens that a backbone made of pixels, in memory or on disk; all of them count."""

    def __init__(
        self, tokens: Tensor | NDArray[np.float16], rows: NDArray[np.int64] | None = None
    ) -> None:
        """`tokens` are [N, R, D]; `rows` has each picture's, by default in the pictures' order."""
        self._tokens, self._rows = tokens, rows

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns float16 [B, R, D] with its mask, int64 [B, R], 1 where a token counts."""
        rows = list(numbers) if self._rows is None else self._rows[list(numbers)]
        tokens_BRD = torch.as_tensor(self._tokens[rows])
        return tokens_BRD, torch.ones(tokens_BRD.shape[:2], dtype=torch.int64)


class RegionImages:
    """Reads a detector's regions from their file on demand: COCO's are 23 GB."""

    def __init__(self, regions: RegionFile, records: Sequence[Record]) -> None:
        """`records` are the pictures, in the order of their numbers."""
        self._regions, self._records = regions, records

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns the same; raises RegionFileInvalid for a record that the file lacks."""
        return self._regions.of([self._records[number] for number in numbers])

    def tokens(self, *_: object) -> Self:
        """Returns itself: no backbone makes them."""
        return self


class PooledImages(Protocol):
    """Gives image tokens, or what a published model reads instead, by number."""

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns rows [B, R, …] and their mask, int64 [B, R]."""
        ...
