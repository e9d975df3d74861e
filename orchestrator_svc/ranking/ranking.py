"""Orders an answer: fuses scores, drops improbable and similar items, interleaves modalities."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.hit import Hit, Match
from orchestrator_svc.query import RankingRule, SearchQuery
from orchestrator_svc.ranking.diversity import distinct_places, marginal_order, similarities
from orchestrator_svc.ranking.explanation import RankExplanation, RankTerm, StageRank, scaled
from orchestrator_svc.ranking.fusion import Fusion

# Comparing so many hits with each other takes a millisecond.
_LONG_COUNT = 100


@dataclass(frozen=True, slots=True)
class RankedHit:
    """Holds a hit with its rank in both orders, from 1, and its match if it was reranked."""

    hit: Hit
    match: Match | None
    retrieve_rank: int
    """Among the hits of its modality."""
    final_rank: int
    score: float
    """What it was ordered by; comparable among reranked hits, or among the others."""
    explanation: RankExplanation | None = None


def rank_answer(
    query: SearchQuery, hits: Sequence[Hit], matches: Mapping[str, Match]
) -> list[RankedHit]:
    """Returns the whole order, of which an answer holds the first `return_n`.

    `hits` are in retrieval order within each modality, with embeddings if
    `query.ranking.are_embeddings_needed`; `matches` are by item id.

    Within a modality, reranked hits precede the others, which stay in retrieval order: the scores
    of the two models are not comparable.
    """
    kinds = [
        _rank_kind(query, [hit for hit in hits if hit.modality in (modality, None)], matches)
        for modality in query.modalities
    ]
    entries = kinds[0]
    if len(kinds) > 1:
        rounds = zip_longest(*kinds)
        entries = [entry for each in rounds for entry in each if entry is not None]
        _note(entries, "interleave")
    return [entry.ranked(place) for place, entry in enumerate(entries, start=1)]


async def rank_answer_aside(
    query: SearchQuery, hits: Sequence[Hit], matches: Mapping[str, Match]
) -> list[RankedHit]:
    """Does what rank_answer does, in a thread if it would block the event loop for long."""
    if query.ranking.are_embeddings_needed and len(hits) > _LONG_COUNT:
        return await asyncio.to_thread(rank_answer, query, hits, matches)
    return rank_answer(query, hits, matches)


async def retrieved_order(query: SearchQuery, hits: Sequence[Hit]) -> list[RankedHit]:
    """Returns the order before the rerank."""
    return await rank_answer_aside(query.as_retrieved, hits, {})


@dataclass(slots=True)
class _Entry:
    """Holds a hit while its rank changes."""

    hit: Hit
    match: Match | None
    retrieve_rank: int
    score: float
    terms: Sequence[RankTerm] = ()
    ranks: list[StageRank] = field(default_factory=list)
    explained: bool = False

    def ranked(self, final_rank: int) -> RankedHit:
        """Returns the hit with its final rank."""
        explanation = RankExplanation(self.terms, self.ranks) if self.explained else None
        return RankedHit(
            self.hit, self.match, self.retrieve_rank, final_rank, self.score, explanation
        )


def _rank_kind(
    query: SearchQuery, hits: Sequence[Hit], matches: Mapping[str, Match]
) -> list[_Entry]:
    """Returns one modality's hits in their final order."""
    rule = query.ranking
    fusion = Fusion(rule, hits, matches)
    entries = [
        _Entry(hit, matches.get(hit.item_id), rank, fusion.score(hit))
        for rank, hit in enumerate(hits, start=1)
    ]
    if query.explained:
        for entry in entries:
            entry.explained = True
            entry.terms = fusion.score_terms(entry.hit)
    _note(entries, "retrieve")
    # Sorting is stable: equal hits, and those without a match, stay in retrieval order.
    entries.sort(key=lambda entry: (entry.match is None, -entry.score if entry.match else 0.0))
    if rule.min_probability is not None:
        entries = [
            entry
            for entry in entries
            if entry.match is not None and entry.match.probability >= rule.min_probability
        ]
    _note(entries, "rerank")
    if rule.are_embeddings_needed and entries:
        entries = _diversified(entries, fusion, rule)
        _note(entries, "diversity")
    return entries


def _diversified(entries: list[_Entry], fusion: Fusion, rule: RankingRule) -> list[_Entry]:
    similarity_NN = similarities(np.stack([_embedding(entry.hit) for entry in entries]))
    if rule.duplicate_similarity is not None:
        places = distinct_places(similarity_NN, rule.duplicate_similarity)
        entries = [entries[place] for place in places]
        similarity_NN = similarity_NN[np.ix_(places, places)]
    if rule.relevance_weight is None:
        return entries
    weight = rule.relevance_weight
    scored_count = sum(entry.match is not None for entry in entries)
    order = marginal_order(
        [fusion.relevance(entry.hit) for entry in entries],
        similarity_NN,
        weight,
        [scored_count, len(entries) - scored_count],
    )
    diversified = []
    for place, redundancy in order:
        entry = entries[place]
        entry.score = weight * fusion.relevance(entry.hit) - (1 - weight) * redundancy
        if entry.explained:
            entry.terms = [
                *scaled(fusion.relevance_terms(entry.hit), weight),
                RankTerm("redundancy", redundancy, weight - 1),
            ]
        diversified.append(entry)
    return diversified


def _note(entries: Sequence[_Entry], stage: str) -> None:
    for rank, entry in enumerate(entries, start=1):
        if entry.explained:
            entry.ranks.append(StageRank(stage, rank))


def _embedding(hit: Hit) -> NDArray[np.float32]:
    assert hit.embedding is not None, "candidates that are compared were retrieved with embeddings"
    return hit.embedding
