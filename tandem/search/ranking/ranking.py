"""Orders an answer: fuses scores, takes neighbour scores, drops and diversifies, interleaves."""

import asyncio
import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.search.query import RankingRule, SearchQuery
from tandem.search.ranking.diversity import distinct_places, marginal_order, similarities
from tandem.search.ranking.explanation import RankExplanation, RankTerm, StageRank, scaled
from tandem.search.ranking.fusion import Fusion
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match

# Comparing so many hits with each other takes a millisecond.
_LONG_COUNT = 100
# Below any cosine.
_LOWEST = -2.0
_NO_SCORES: Mapping[str, float] = {}


class OrderingStage(enum.Enum):
    """Names a stage that orders items; names are the contract's."""

    RETRIEVE = "retrieve"
    RERANK = "rerank"
    NEIGHBOURS = "neighbours"


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
    neighbour_score: float | None = None
    """The neighbour model's; None if it did not score the hit."""

    @property
    def ordered_by(self) -> OrderingStage:
        """The stage that gave the score."""
        if self.neighbour_score is not None:
            return OrderingStage.NEIGHBOURS
        return OrderingStage.RETRIEVE if self.match is None else OrderingStage.RERANK


def rank_answer(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    neighbour_scores: Mapping[str, float] = _NO_SCORES,
) -> list[RankedHit]:
    """Returns the whole order, of which an answer holds the first `return_n`.

    `hits` are in retrieval order within each modality, with embeddings if
    `query.ranking.are_embeddings_needed`; `matches` and `neighbour_scores` are by item id.

    Within a modality, hits that the neighbour model scored come first, then reranked ones, then the
    others in retrieval order: the scores of two models are not comparable.
    """
    kinds = [
        _rank_kind(query, _of_modality(hits, modality), matches, neighbour_scores)
        for modality in query.modalities
    ]
    entries = kinds[0]
    if len(kinds) > 1:
        rounds = zip_longest(*kinds)
        entries = [entry for each in rounds for entry in each if entry is not None]
        _note(entries, "interleave")
    return [entry.ranked(place) for place, entry in enumerate(entries, start=1)]


async def rank_answer_aside(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    neighbour_scores: Mapping[str, float] = _NO_SCORES,
) -> list[RankedHit]:
    """Does what rank_answer does, in a thread if it would block the event loop for long."""
    if query.ranking.are_embeddings_needed and len(hits) > _LONG_COUNT:
        return await asyncio.to_thread(rank_answer, query, hits, matches, neighbour_scores)
    return rank_answer(query, hits, matches, neighbour_scores)


def reranked_hits(
    query: SearchQuery, hits: Sequence[Hit], matches: Mapping[str, Match], modality: Modality
) -> list[Hit]:
    """Returns the hits of a modality as retrieval and rerank order them, without what they drop."""
    return [entry.hit for entry in _reranked(query, _of_modality(hits, modality), matches)[0]]


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
    neighbour_score: float | None = None

    def ranked(self, final_rank: int) -> RankedHit:
        """Returns the hit with its final rank."""
        explanation = RankExplanation(self.terms, self.ranks) if self.explained else None
        return RankedHit(
            self.hit,
            self.match,
            self.retrieve_rank,
            final_rank,
            self.score,
            explanation,
            self.neighbour_score,
        )


def _of_modality(hits: Sequence[Hit], modality: Modality) -> list[Hit]:
    return [hit for hit in hits if hit.modality in (modality, None)]


def _rank_kind(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    neighbour_scores: Mapping[str, float],
) -> list[_Entry]:
    """Returns one modality's hits in their final order."""
    rule = query.ranking
    entries, fusion = _reranked(query, hits, matches)
    if neighbour_scores:
        _order_by_neighbours(entries, neighbour_scores)
    if rule.are_embeddings_needed and entries:
        entries = _diversified(entries, fusion, rule)
        _note(entries, "diversity")
    return entries


def _reranked(
    query: SearchQuery, hits: Sequence[Hit], matches: Mapping[str, Match]
) -> tuple[list[_Entry], Fusion]:
    """Returns one modality's hits as retrieval and rerank order them."""
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
            if entry.match is not None
            and entry.match.probability is not None
            and entry.match.probability >= rule.min_probability
        ]
    _note(entries, "rerank")
    return entries, fusion


def _order_by_neighbours(entries: list[_Entry], scores: Mapping[str, float]) -> None:
    """Moves the hits with a score to the front, the best first; the others keep their order."""
    for entry in entries:
        score = scores.get(entry.hit.item_id)
        if score is None:
            continue
        entry.neighbour_score = entry.score = score
        if entry.explained:
            entry.terms = [RankTerm("neighbour_score", score, 1.0)]
    entries.sort(key=lambda entry: -_LOWEST if entry.neighbour_score is None else -entry.score)
    _note(entries, "neighbours")


def _diversified(entries: list[_Entry], fusion: Fusion, rule: RankingRule) -> list[_Entry]:
    similarity_NN = similarities(np.stack([_embedding(entry.hit) for entry in entries]))
    if rule.duplicate_similarity is not None:
        places = distinct_places(similarity_NN, rule.duplicate_similarity)
        entries = [entries[place] for place in places]
        similarity_NN = similarity_NN[np.ix_(places, places)]
    if rule.relevance_weight is None:
        return entries
    weight = rule.relevance_weight
    order = marginal_order(
        [_relevance(entry, fusion) for entry in entries],
        similarity_NN,
        weight,
        _block_sizes(entries),
    )
    diversified = []
    for place, redundancy in order:
        entry = entries[place]
        entry.score = weight * _relevance(entry, fusion) - (1 - weight) * redundancy
        if entry.explained:
            terms = entry.terms
            if entry.neighbour_score is None:
                terms = fusion.relevance_terms(entry.hit)
            entry.terms = [*scaled(terms, weight), RankTerm("redundancy", redundancy, weight - 1)]
        diversified.append(entry)
    return diversified


def _relevance(entry: _Entry, fusion: Fusion) -> float:
    """Returns the score on the scale of similarities; a neighbour score is a cosine already."""
    if entry.neighbour_score is None:
        return fusion.relevance(entry.hit)
    return entry.neighbour_score


def _block_sizes(entries: Sequence[_Entry]) -> list[int]:
    """Returns the number of hits that each stage ordered, the last stage's first."""
    counts = Counter(
        (entry.neighbour_score is None, entry.neighbour_score is None and entry.match is None)
        for entry in entries
    )
    return [counts[False, False], counts[True, False], counts[True, True]]


def _note(entries: Sequence[_Entry], stage: str) -> None:
    for rank, entry in enumerate(entries, start=1):
        if entry.explained:
            entry.ranks.append(StageRank(stage, rank))


def _embedding(hit: Hit) -> NDArray[np.float32]:
    assert hit.embedding is not None, "candidates that are compared were retrieved with embeddings"
    return hit.embedding
