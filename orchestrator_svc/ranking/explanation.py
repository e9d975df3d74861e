"""How an item came to its place: what its score is the sum of, and where it stood when."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankTerm:
    """A summand: `value` times `weight`."""

    name: str
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class StageRank:
    """Where an item stood after a stage, from 1."""

    stage: str
    rank: int


@dataclass(frozen=True, slots=True)
class RankExplanation:
    """The terms sum to the item's score; the last of the ranks is its place in the answer."""

    terms: Sequence[RankTerm]
    ranks: Sequence[StageRank]


def scaled(terms: Sequence[RankTerm], factor: float) -> list[RankTerm]:
    """Returns terms whose sum is `factor` times that of these."""
    return [RankTerm(term.name, term.value, term.weight * factor) for term in terms]
