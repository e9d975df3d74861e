"""Orders an answer: fuses scores, takes later stages' scores, drops, diversifies, interleaves."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.search.answer import Explanation, FoundItem, ScoreTerm, ordering_stage
from tandem.contract.search.answer_names import OrderedBy
from tandem.contract.search.query import RankingRule, SearchQuery
from tandem.search.ranking.abstention import ScoreBar
from tandem.search.ranking.diversity import distinct_places, marginal_order, similarities
from tandem.search.ranking.fusion import Fusion
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match
from tandem.stages.stage import Stage

# Comparing so many hits with each other takes a millisecond.
_LONG_COUNT = 100


@dataclass(frozen=True, slots=True)
class StageOrder:
    """Holds the scores of a stage after the rerank, by item id."""

    stage: Stage
    scores: Mapping[str, float]


def rank_answer(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    stages: Sequence[StageOrder] = (),
    bar: ScoreBar | None = None,
) -> list[FoundItem]:
    """Returns the whole order, of which an answer holds the first `return_n`.

    `hits` are in retrieval order within each modality, with embeddings if
    `query.ranking.are_embeddings_needed`; `matches` are by item id.

    Within a modality, hits that the last stage scored come first, then those of earlier ones, then
    reranked ones, then the others in retrieval order: the scores of two models are not comparable.
    Hits below the `bar` are left out.
    """
    kinds = [
        _rank_kind(query, _of_modality(hits, modality), matches, stages, bar)
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
    stages: Sequence[StageOrder] = (),
    bar: ScoreBar | None = None,
) -> list[FoundItem]:
    """Does what rank_answer does, in a thread if it would block the event loop for long."""
    if query.ranking.are_embeddings_needed and len(hits) > _LONG_COUNT:
        return await asyncio.to_thread(rank_answer, query, hits, matches, stages, bar)
    return rank_answer(query, hits, matches, stages, bar)


def reranked_hits(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    modality: Modality,
    stages: Sequence[StageOrder] = (),
    bar: ScoreBar | None = None,
) -> list[Hit]:
    """Returns the hits of a modality as stages so far order them, without what they drop."""
    entries, _ = _reranked(query, _of_modality(hits, modality), matches, bar)
    for stage in stages:
        _order_by(entries, stage)
    return [entry.hit for entry in entries]


async def retrieved_order(
    query: SearchQuery, hits: Sequence[Hit], bar: ScoreBar | None = None
) -> list[FoundItem]:
    """Returns the order before the rerank."""
    return await rank_answer_aside(query.as_retrieved, hits, {}, bar=bar)


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
    stage_score: float | None = None
    ordered_by: OrderedBy | None = None
    """Of the stage after the rerank that scored it."""

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
            neighbour_score=_float32(self.stage_score)
            if self.stage_score is not None and self.ordered_by is OrderedBy.NEIGHBOURS
            else None,
            hybrid=hit.hybrid,
            ordered_by=self.ordered_by or ordering_stage(logit, None),
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
    stages: Sequence[StageOrder],
    bar: ScoreBar | None,
) -> list[_Entry]:
    """Returns one modality's hits in their final order."""
    rule = query.ranking
    entries, fusion = _reranked(query, hits, matches, bar)
    for stage in stages:
        if stage.scores:
            _order_by(entries, stage)
    if rule.are_embeddings_needed and entries:
        entries = _diversified(entries, fusion, rule)
        _note(entries, "diversity")
    return entries


def _reranked(
    query: SearchQuery,
    hits: Sequence[Hit],
    matches: Mapping[str, Match],
    bar: ScoreBar | None,
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
    if bar is not None:
        entries = [entry for entry in entries if bar.clears(entry.hit, entry.match)]
    _note(entries, "rerank")
    return entries, fusion


def _order_by(entries: list[_Entry], order: StageOrder) -> None:
    """Moves the hits with a score to the front, the best first; the others keep their order."""
    for entry in entries:
        score = order.scores.get(entry.hit.item_id)
        if score is None:
            continue
        entry.stage_score = entry.score = score
        entry.ordered_by = order.stage.ordered_by
        if entry.explained:
            entry.terms = [ScoreTerm(order.stage.score_name, score, 1.0)]
    scores = order.scores
    entries.sort(key=lambda entry: -scores.get(entry.hit.item_id, -math.inf))
    _note(entries, order.stage.name)


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
            if entry.stage_score is None:
                terms = fusion.relevance_terms(entry.hit)
            entry.terms = [
                *(ScoreTerm(term.name, term.value, term.weight * weight) for term in terms),
                ScoreTerm("redundancy", redundancy, weight - 1),
            ]
        diversified.append(entry)
    return diversified


def _relevance(entry: _Entry, fusion: Fusion) -> float:
    """Returns the score on the scale of similarities; a later stage's is on it already."""
    if entry.stage_score is None:
        return fusion.relevance(entry.hit)
    return entry.stage_score


def _block_sizes(entries: Sequence[_Entry]) -> list[int]:
    """Returns the number of hits that each stage ordered, the last stage's first."""
    counts = Counter(
        (entry.stage_score is None, entry.stage_score is None and entry.match is None)
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
