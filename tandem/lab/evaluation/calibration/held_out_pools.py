"""Holds scored pools with known answers, on which calibrations are fitted and tested.

Shapes: Q queries, K candidates of a pool, M items of the target modality.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.lab.evaluation.gallery import Gallery
from tandem.lab.evaluation.offline import OfflineGallery, ScoredPools

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class HeldOutPools:
    """Holds one direction's pools [Q, K], candidates in the bi-encoder's order."""

    similarity: Floats
    match_logits: Floats
    is_answer: NDArray[np.bool_]
    """Whether recall counts the candidate."""
    is_match: NDArray[np.bool_]
    """Whether the query is true of the candidate, which is what a match probability states."""

    @classmethod
    def of(
        cls,
        pools: ScoredPools,
        gallery: Gallery,
        target: Modality,
        query_numbers: Sequence[int] | None = None,
    ) -> Self:
        """Returns the scored part of the pools of these queries for `target`, by default of all."""
        pool_QK = pools.retrieved[:, : pools.logits.shape[1]]
        answers, matches = gallery.answers(target), gallery.matches(target)
        query_numbers = range(len(answers)) if query_numbers is None else query_numbers
        return cls(
            np.take_along_axis(pools.similarity, pool_QK, axis=1),
            pools.logits,
            _is_in(pool_QK, [answers[number] for number in query_numbers]),
            _is_in(pool_QK, [matches[number] for number in query_numbers]),
        )

    @classmethod
    def of_texts(cls, encoded: OfflineGallery, gallery: Gallery, k: int) -> Self:
        """Returns each picture's first caption with the `k` nearest of all second captions.

        The gallery has two of each picture. Similarities take the logits' place.
        """
        texts_MD = encoded.embeddings(Modality.TEXT)
        similarity_QN = texts_MD[::2] @ texts_MD[1::2].T
        pool_QK = np.argsort(-similarity_QN, axis=1, kind="stable")[:, :k]
        similarity_QK = np.take_along_axis(similarity_QN, pool_QK, axis=1)
        matches = [{n // 2 for n in each if n % 2} for each in gallery.matches(Modality.TEXT)]
        is_match_QK = _is_in(pool_QK, matches)
        return cls(similarity_QK, similarity_QK, is_match_QK, is_match_QK)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        return cls(
            *(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls))
        )

    def only(self, is_chosen_Q: NDArray[np.bool_]) -> Self:
        """Returns the pools of these queries."""
        return type(self)(*(getattr(self, each.name)[is_chosen_Q] for each in fields(self)))

    @property
    def query_count(self) -> int:
        return len(self.match_logits)

    @property
    def pool_size(self) -> int:
        return int(self.match_logits.shape[1])


def _is_in(pool_QK: NDArray[np.int64], wanted: Sequence[Collection[int]]) -> NDArray[np.bool_]:
    rows = zip(pool_QK, wanted, strict=True)
    return np.stack([np.isin(pool_K, list(numbers)) for pool_K, numbers in rows])
