"""Pools of searches whose answers are known: what calibrations are fitted and tested on.

Shapes: Q queries, K candidates of a pool, M items of the target modality.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tandem.evaluation.offline import ScoredPools

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class HeldOutPools:
    """One direction's pools, a row a query, candidates in the bi-encoder's order."""

    similarity: Floats
    """[Q, K]."""
    match_logits: Floats
    """[Q, K]."""
    is_answer: NDArray[np.bool_]
    """[Q, K]."""

    @classmethod
    def of(cls, pools: ScoredPools, answers: Sequence[Collection[int]]) -> Self:
        """Returns the scored part of the pools; `answers` are numbers of items, for each query."""
        pool_QK = pools.retrieved[:, : pools.logits.shape[1]]
        rows = zip(pool_QK, answers, strict=True)
        return cls(
            np.take_along_axis(pools.similarity, pool_QK, axis=1),
            pools.logits,
            np.stack([np.isin(pool_K, list(wanted)) for pool_K, wanted in rows]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Returns all queries of parts with pools of one size."""
        return cls(
            np.concatenate([part.similarity for part in parts]),
            np.concatenate([part.match_logits for part in parts]),
            np.concatenate([part.is_answer for part in parts]),
        )

    @property
    def query_count(self) -> int:
        """Q."""
        return len(self.match_logits)

    @property
    def pool_size(self) -> int:
        """K."""
        return self.match_logits.shape[1]
