"""Gives image tokens of the pictures that a run trains on, by number.

Shapes: N pictures, B rows, R image tokens, D token width.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tandem.corpus.records import Record


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


class ReadImages:
    """Reads records on demand, because COCO's regions take 23 GB and its pictures 50 GB."""

    def __init__(
        self, content: Callable[[Record], NDArray[Any]], records: Sequence[Record]
    ) -> None:
        """`content` gives a record's rows; `records` are in the order of their numbers."""
        self._content, self._records = content, records
        self._threads = ThreadPoolExecutor()

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns the rows, padded with zeros to the most of them, and their mask, int64 [B, R]."""
        contents = [*self._threads.map(self._content, [self._records[each] for each in numbers])]
        most = max(map(len, contents))
        made = np.zeros((len(contents), most, *contents[0].shape[1:]), contents[0].dtype)
        mask = np.zeros((len(contents), most), np.int64)
        for row, content in enumerate(contents):
            made[row, : len(content)] = content
            mask[row, : len(content)] = 1
        return torch.from_numpy(made), torch.from_numpy(mask)

    def tokens(self, *_: object) -> Self:
        """Returns itself: no backbone makes them."""
        return self


class PooledImages(Protocol):
    """Gives image tokens, or what a published model reads instead, by number."""

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns rows [B, R, …] and their mask, int64 [B, R]."""
        ...
