"""Fuses similarity and the cross-encoder's match into one score (Geigle et al. 2022, section 6)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tandem.contract.fusion import FusionMethod
from tandem.contract.search.answer import ScoreTerm
from tandem.contract.search.query import RankingRule
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match

_DEFAULT_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class _Spread:
    """Scales the values of a pool to 0 to 1."""

    low: float
    width: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Self:
        """Returns the spread of these values; that of an empty pool is never used."""
        pool = list(values) or [0.0]
        return cls(min(pool), max(pool) - min(pool))

    def __call__(self, value: float) -> float:
        # All values are equal: each gets the middle.
        return (value - self.low) / self.width if self.width > 0 else 0.5


class Fusion:
    """Scores one query's hits.

    A hit without a match has its similarity or, in a hybrid search, its fused score, which is not
    comparable with the others'.
    """

    def __init__(
        self, rule: RankingRule, hits: Sequence[Hit], matches: Mapping[str, Match]
    ) -> None:
        """Takes `matches` by item id; the pool is the hits that have one."""
        self._method = rule.fusion or FusionMethod.CROSS_ENCODER
        weight = rule.cross_encoder_weight
        self._weight = _DEFAULT_WEIGHT if weight is None else weight
        self._matches = matches
        self._similarity_spread = self._relevance_spread = _Spread(0.0, 1.0)
        if self._method is FusionMethod.NORMALISED_ADD:
            pool = [(hit, matches[hit.item_id]) for hit in hits if hit.item_id in matches]
            self._similarity_spread = _Spread.over(hit.similarity for hit, _ in pool)
            self._relevance_spread = _Spread.over(match.relevance for _, match in pool)

    def score(self, hit: Hit) -> float:
        """Returns the score that orders the hit among those with a match, or without one."""
        match = self._matches.get(hit.item_id)
        if match is None:
            return hit.retrieval_score
        if self._method is FusionMethod.CROSS_ENCODER:
            return match.logit
        if self._method is FusionMethod.LOGIT_ADD:
            return (1 - self._weight) * hit.similarity + self._weight * match.logit
        return self._sum(hit, match)

    def relevance(self, hit: Hit) -> float:
        """Returns the score on the scale of similarities, -1 to 1."""
        match = self._matches.get(hit.item_id)
        if match is None:
            return hit.similarity
        if self._method is FusionMethod.CROSS_ENCODER:
            return match.relevance
        return self._sum(hit, match)

    def score_terms(self, hit: Hit) -> Sequence[ScoreTerm]:
        """Returns the terms that sum to the score."""
        match = self._matches.get(hit.item_id)
        if match is None and hit.hybrid is not None:
            return [ScoreTerm("fused_score", hit.hybrid.fused_score, 1.0)]
        if match is not None and self._method is FusionMethod.CROSS_ENCODER:
            return [ScoreTerm("match_logit", match.logit, 1.0)]
        if match is not None and self._method is FusionMethod.LOGIT_ADD:
            return [
                ScoreTerm("similarity", hit.similarity, 1 - self._weight),
                ScoreTerm("match_logit", match.logit, self._weight),
            ]
        return self.relevance_terms(hit)

    def relevance_terms(self, hit: Hit) -> Sequence[ScoreTerm]:
        """Returns the terms that sum to the relevance."""
        match = self._matches.get(hit.item_id)
        if match is None:
            return [ScoreTerm("similarity", hit.similarity, 1.0)]
        if self._method is FusionMethod.CROSS_ENCODER:
            return [ScoreTerm(_term_name(match), match.relevance, 1.0)]
        start = "normalised_" if self._method is FusionMethod.NORMALISED_ADD else ""
        return [
            ScoreTerm(f"{start}similarity", self._similarity(hit), 1 - self._weight),
            ScoreTerm(f"{start}{_term_name(match)}", self._relevance(match), self._weight),
        ]

    def _sum(self, hit: Hit, match: Match) -> float:
        return (1 - self._weight) * self._similarity(hit) + self._weight * self._relevance(match)

    def _similarity(self, hit: Hit) -> float:
        if self._method is FusionMethod.NORMALISED_ADD:
            return self._similarity_spread(hit.similarity)
        return hit.similarity

    def _relevance(self, match: Match) -> float:
        if self._method is FusionMethod.NORMALISED_ADD:
            return self._relevance_spread(match.relevance)
        return match.relevance


def _term_name(match: Match) -> str:
    return "match_logit_sigmoid" if match.probability is None else "match_probability"
