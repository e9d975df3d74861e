"""Explains an item's rank: the terms of its score, and its rank after each stage."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankTerm:
    """Holds one term of a score: `value` times `weight`."""

    name: str
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class StageRank:
    """Holds an item's rank after a stage, from 1."""

    stage: str
    rank: int


@dataclass(frozen=True, slots=True)
class RankExplanation:
    """Holds the terms that sum to an item's score, and its ranks; the last is its final rank."""

    terms: Sequence[RankTerm]
    ranks: Sequence[StageRank]


def scaled(terms: Sequence[RankTerm], factor: float) -> list[RankTerm]:
    """Returns terms whose sum is `factor` times that of these."""
    return [RankTerm(term.name, term.value, term.weight * factor) for term in terms]
