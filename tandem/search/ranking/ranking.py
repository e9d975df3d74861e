"""Orders an answer: fuses scores, takes neighbour scores, drops and diversifies, interleaves."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.search.answer import Explanation, FoundItem, ScoreTerm, ordering_stage
from tandem.contract.search.query import RankingRule, SearchQuery
from tandem.search.ranking.diversity import distinct_places, marginal_order, similarities
from tandem.search.ranking.fusion import Fusion
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match

# Comparing so many hits with each other takes a millisecond.
_LONG_COUNT = 100
# Below any cosine.
_LOWEST = -2.0
_NO_SCORES: Mapping[str, float] = {}


def rank_answer(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    neighbour_scores: Mapping[str, float] = _NO_SCORES,
) -> list[FoundItem]:
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
    return [entry.found(place) for place, entry in enumerate(entries, start=1)]


async def rank_answer_aside(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    neighbour_scores: Mapping[str, float] = _NO_SCORES,
) -> list[FoundItem]:
    """Does what rank_answer does, in a thread if it would block the event loop for long."""
    if query.ranking.are_embeddings_needed and len(hits) > _LONG_COUNT:
        return await asyncio.to_thread(rank_answer, query, hits, matches, neighbour_scores)
    return rank_answer(query, hits, matches, neighbour_scores)


def reranked_hits(
    query: SearchQuery, hits: Sequence[Hit], matches: Mapping[str, Match], modality: Modality
) -> list[Hit]:
    """Returns the hits of a modality as retrieval and rerank order them, without what they drop."""
    return [entry.hit for entry in _reranked(query, _of_modality(hits, modality), matches)[0]]


async def retrieved_order(query: SearchQuery, hits: Sequence[Hit]) -> list[FoundItem]:
    """Returns the order before the rerank."""
    return await rank_answer_aside(query.as_retrieved, hits, {})


@dataclass(slots=True)
class _Entry:
    """Holds a hit while its rank changes."""

    hit: Hit
    match: Match | None
    retrieve_rank: int
    score: float
    terms: Sequence[ScoreTerm] = ()
    ranks: dict[str, int] = field(default_factory=dict)
    """The rank after each stage, from 1."""
    explained: bool = False
    neighbour_score: float | None = None

    def found(self, final_rank: int) -> FoundItem:
        """Returns the item at its final rank, its scores in the precision of a message."""
        hit, match = self.hit, self.match
        logit = match.logit if match else None
        return FoundItem(
            item_id=hit.item_id,
            similarity=_float32(hit.similarity),
            match_logit=logit,
            match_probability=match.probability if match else None,
            retrieve_rank=self.retrieve_rank,
            final_rank=final_rank,
            content=None,
            modality=hit.modality,
            score=_float32(self.score),
            explanation=Explanation(tuple(self.terms), self.ranks) if self.explained else None,
            neighbour_score=None
            if self.neighbour_score is None
            else _float32(self.neighbour_score),
            hybrid=hit.hybrid,
            ordered_by=ordering_stage(logit, self.neighbour_score),
        )


def _float32(value: float) -> float:
    # A search in one process answers as one behind a socket does.
    return float(np.float32(value))


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
            entry.terms = [ScoreTerm("neighbour_score", score, 1.0)]
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
            entry.terms = [
                *(ScoreTerm(term.name, term.value, term.weight * weight) for term in terms),
                ScoreTerm("redundancy", redundancy, weight - 1),
            ]
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
            entry.ranks[stage] = rank


def _embedding(hit: Hit) -> NDArray[np.float32]:
    assert hit.embedding is not None, "candidates that are compared were retrieved with embeddings"
    return hit.embedding
