"""What a search of one shard finds, and how it found it."""

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
    """One retrieved item."""

    item_id: str
    similarity: float
    row: int = field(default=-1, compare=False)
    """Where its embedding is, for as long as the search holds off changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """One query's nearest items, best first, ties by smaller item id."""

    hits: Sequence[RowHit]
    path: SearchPath
    embeddings: F32 | None = None
    """Of the hits, float32 [hits, d], where they were asked for."""
