"""Gives image tokens of the pictures that a run trains on, by number.

Shapes: N pictures, B rows, R image tokens, D token width.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from tandem.corpus.records import Record
from tandem.modeling.image_sources.region_tokens import RegionFile


class PooledImages(Protocol):
    """Gives batches their image tokens."""

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns float16 [B, R, D] with its mask, int64 [B, R], 1 where a token counts."""
        ...


class HeldImages:
    """Holds in memory the tokens that a backbone made of pixels; all of them count."""

    def __init__(self, tokens_NRD: Tensor) -> None:
        self._tokens_NRD = tokens_NRD

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns tokens and mask in the order of `numbers`."""
        tokens_BRD = self._tokens_NRD[list(numbers)]
        return tokens_BRD, torch.ones(tokens_BRD.shape[:2], dtype=torch.int64)


class RegionImages:
    """Reads a detector's regions from their file on demand: COCO's are 23 GB."""

    def __init__(self, regions: RegionFile, records: Sequence[Record]) -> None:
        """`records` are the pictures, in the order of their numbers."""
        self._regions, self._records = regions, records

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns tokens and mask; raises RegionFileInvalid for a record that the file lacks."""
        return self._regions.of([self._records[number] for number in numbers])
