"""What a search of one shard finds, and how it found it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved item."""

    item_id: str
    similarity: float
    row: int = field(default=-1, compare=False)
    """Where its embedding is, for as long as the search holds off changes."""


class Strategy(Enum):
    """What is done first; named as in `tandem.v1.SearchStrategy`."""

    UNFILTERED = 1
    PRE_FILTER = 2
    POST_FILTER = 3
    EXACT_SCAN = 4


@dataclass(frozen=True, slots=True)
class SearchPath:
    """How nearest items were found; the fields are those of `tandem.v1.SearchPath`."""

    strategy: Strategy
    index_type: str = ""
    device: str = "cpu"
    fallback_reason: str = ""
    matching_count: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """One query's nearest items, best first, ties by smaller item id."""

    hits: Sequence[Hit]
    path: SearchPath
    embeddings: F32 | None = None
    """Of the hits, float32 [hits, d], where they were asked for."""
