"""Defines what a search of one index finds, and how."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tandem.contract.search_path import SearchPath as SearchPath
from tandem.contract.search_path import SearchStrategy as Strategy

__all__ = ["F32", "I64", "Found", "Mask", "RowHit", "SearchPath", "Strategy"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowHit:
    """Describes one found item."""

    item_id: str
    similarity: float
    row: int = field(default=-1, compare=False)
    """The row of its embedding, valid while the search holds off changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Reports an embedding's nearest items, best first, ties by smaller item id."""

    hits: Sequence[RowHit]
    path: SearchPath
    embeddings: F32 | None = None
    """Of the hits, float32 [hits, d], if requested."""
