"""Chooses how to fuse two lists on some queries, and compares the choice on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from benchmarks.support.keyword_task import RETRIEVE_K, KeywordTask
from orchestrator_svc.hit import Hit, KeywordHit
from orchestrator_svc.query import HybridRule
from orchestrator_svc.ranking.hybrid_fusion import fused_hits
from tandem.contract.hybrid import HybridFusion
from tandem.evaluation.metrics import mean_reciprocal_rank

KEYWORD_WEIGHTS = tuple(tenths / 10 for tenths in range(1, 10))
RESAMPLE_COUNT = 10_000

Ranks = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class FusionChoice:
    """Says how the two lists are fused."""

    fusion: HybridFusion
    keyword_weight: float

    def __str__(self) -> str:
        return f"{self.fusion.value} {self.keyword_weight}"


DEFAULT_CHOICE = FusionChoice(HybridFusion.RECIPROCAL_RANK, 0.5)
CHOICES = [FusionChoice(*each) for each in product(HybridFusion, KEYWORD_WEIGHTS)]


@dataclass(frozen=True, slots=True)
class FoundLists:
    """Holds what the embeddings and the words found for each query of a task."""

    task: KeywordTask
    nearest: Sequence[Sequence[Hit]]
    worded: Sequence[Sequence[KeywordHit]]

    def near_ranks(self) -> Ranks:
        """Returns the ranks by embeddings alone."""
        return self.task.ranks(self.nearest)

    def word_ranks(self) -> Ranks:
        """Returns the ranks by words alone."""
        return self.task.ranks([[each.hit for each in hits] for hits in self.worded])

    def fused_ranks(self, choice: FusionChoice) -> Ranks:
        """Returns the ranks of the fused lists."""
        rule = HybridRule(keywords="-", fusion=choice.fusion, keyword_weight=choice.keyword_weight)
        return self.task.ranks(
            [
                fused_hits(near, worded, rule, RETRIEVE_K)
                for near, worded in zip(self.nearest, self.worded, strict=True)
            ]
        )

    def reciprocal_ranks(self, constant: int, keyword_weight: float) -> Ranks:
        """Returns the ranks of a fusion by reciprocal rank with another constant than 60."""

        def fused(near: Sequence[Hit], worded: Sequence[KeywordHit]) -> list[Hit]:
            hits = {each.hit.item_id: each.hit for each in worded}
            hits |= {hit.item_id: hit for hit in near}
            scores = dict.fromkeys(hits, 0.0)
            for rank, hit in enumerate(near, start=1):
                scores[hit.item_id] += (1 - keyword_weight) / (constant + rank)
            for rank, each in enumerate(worded, start=1):
                scores[each.hit.item_id] += keyword_weight / (constant + rank)
            return [hits[each] for each in sorted(scores, key=lambda each: (-scores[each], each))]

        return self.task.ranks(
            [fused(*each) for each in zip(self.nearest, self.worded, strict=True)]
        )


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Holds the difference of two systems' MRR on the same queries, in points."""

    points: float
    low: float
    """The 95 % interval of a bootstrap over queries."""
    high: float
    p_value: float
    """Two-sided, of a permutation test that swaps the systems query by query."""


def best_choice(of: Callable[[FusionChoice], Ranks]) -> FusionChoice:
    """Returns the choice of the highest MRR@10; the earlier of equal ones."""
    return max(CHOICES, key=lambda choice: mean_reciprocal_rank(of(choice)))


def paired_difference(of_a: Ranks, of_b: Ranks, seed: int = 0) -> PairedDifference:
    """Returns by how much a is better than b. Raises ValueError for unequal numbers of queries."""
    if len(of_a) != len(of_b):
        raise ValueError(f"{len(of_a)} and {len(of_b)} queries are not the same queries")
    gains_Q = 100.0 * (_reciprocal(of_a) - _reciprocal(of_b))
    generator = np.random.default_rng(seed)
    count = len(gains_Q)
    means = np.array(
        [gains_Q[generator.integers(0, count, count)].mean() for _ in range(RESAMPLE_COUNT)]
    )
    swapped = np.array(
        [(gains_Q * generator.choice((-1.0, 1.0), count)).mean() for _ in range(RESAMPLE_COUNT)]
    )
    observed = float(gains_Q.mean())
    # Equal sums differ in their last digits by the order of their terms.
    extreme = int(np.sum(np.abs(swapped) >= abs(observed) - 1e-9))
    low, high = np.percentile(means, (2.5, 97.5))
    return PairedDifference(observed, float(low), float(high), (extreme + 1) / (RESAMPLE_COUNT + 1))


def _reciprocal(ranks: Ranks) -> npt.NDArray[np.float64]:
    return np.array([0.0 if rank is None else 1 / rank for rank in ranks])
