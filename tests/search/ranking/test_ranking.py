"""The final order: reranked hits first, and the options that change it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.contract.content import Modality, TextContent
from tandem.contract.fusion import FusionMethod
from tandem.contract.search.answer import FoundItem
from tandem.contract.search.answer_names import OrderedBy
from tandem.contract.search.query import Depth, RankingRule, SearchQuery, WeightedPart
from tandem.errors import RankingInvalid
from tandem.search.neighbours.neighbour_stage import NeighbourStage
from tandem.search.ranking.ranking import (
    StageOrder,
    rank_answer,
    reranked_hits,
    retrieved_order,
)
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match

# Few different values, so that ties are common.
values = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])


QUERY = SearchQuery(
    parts=(WeightedPart(TextContent("1")),),
    index_id="scenes",
    target_modality=Modality.IMAGE,
    depth=Depth.of(None, None, None),
)


def rank_hits(hits: list[Hit], matches: dict[str, Match]) -> list[FoundItem]:
    """Returns the order of a search that asks for nothing else."""
    return rank_answer(QUERY, hits, matches)


def match_of(item: FoundItem) -> Match | None:
    """Returns the item's match, if it was reranked."""
    if item.match_logit is None:
        return None
    return Match(item.match_logit, item.match_probability)


def in_order(hits: list[Hit]) -> list[Hit]:
    """Returns hits best first, ties by smaller item id: what a shard answers with."""
    return sorted(hits, key=lambda hit: (-hit.similarity, hit.item_id))


@st.composite
def retrieved(draw: st.DrawFn) -> list[Hit]:
    """Yields up to 12 hits of different ids, in retrieval order."""
    ids = draw(st.lists(st.integers(0, 50).map(str), max_size=12, unique=True))
    return in_order([Hit(item_id, draw(values)) for item_id in ids])


@st.composite
def scored(draw: st.DrawFn) -> tuple[list[Hit], dict[str, Match]]:
    """Yields hits, of which some are scored."""
    hits = draw(retrieved())
    matches = {hit.item_id: Match(draw(values), 0.5) for hit in hits if draw(st.booleans())}
    return hits, matches


@given(scored())
def test_ranking_is_a_permutation(case: tuple[list[Hit], dict[str, Match]]) -> None:
    """Nothing is lost or doubled; both ranks count from 1 without gaps."""
    hits, matches = case

    ranked = rank_hits(hits, matches)

    assert [entry.final_rank for entry in ranked] == list(range(1, len(hits) + 1))
    places = {entry.retrieve_rank: entry.item_id for entry in ranked}
    assert places == {place: hit.item_id for place, hit in enumerate(hits, start=1)}
    assert all(match_of(entry) == matches.get(entry.item_id) for entry in ranked)


def test_a_worked_example() -> None:
    """Retrieved a b c d; b and d scored 2 and 3, a scored -9, c not: d b a c."""
    hits = [Hit("a", 0.9), Hit("b", 0.8), Hit("c", 0.7), Hit("d", 0.6)]
    matches = {
        "a": Match(-9.0, 0.0),
        "b": Match(2.0, 0.9),
        "d": Match(3.0, 0.95),
        "gone": Match(99.0, 1.0),
    }

    ranked = rank_hits(hits, matches)

    assert [entry.item_id for entry in ranked] == ["d", "b", "a", "c"]
    assert [entry.retrieve_rank for entry in ranked] == [4, 2, 1, 3]
    assert ranked[-1].match_logit is None


def pointed(item_id: str, similarity: float, degrees: float) -> Hit:
    """Returns a hit whose embedding is at this angle."""
    angle = math.radians(degrees)
    embedding = np.array([math.cos(angle), math.sin(angle)], dtype=np.float32)
    return Hit(item_id, similarity, Modality.IMAGE, embedding)


def ids(ranked: list[FoundItem]) -> list[str]:
    """Returns the items, best first."""
    return [entry.item_id for entry in ranked]


rules = st.builds(
    RankingRule,
    fusion=st.sampled_from(FusionMethod),
    min_probability=st.none() | st.floats(0, 1),
    relevance_weight=st.none() | st.floats(0, 1),
    duplicate_similarity=st.none() | st.floats(-1, 1),
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[SearchQuery, list[Hit], dict[str, Match]]:
    """Yields a search with everything that can be asked for, hits of two kinds, and scores."""
    query = replace(
        QUERY,
        ranking=draw(rules),
        explained=True,
        all_modalities_included=draw(st.booleans()),
    )
    hits: list[Hit] = []
    for modality in query.modalities:
        similarities = sorted(draw(st.lists(st.floats(-1, 1, width=32), max_size=8)), reverse=True)
        hits += [
            replace(
                pointed(f"{modality.value}-{n}", similarity, draw(st.floats(0, 360))),
                modality=modality,
            )
            for n, similarity in enumerate(similarities)
        ]
    matches = {
        hit.item_id: Match(logit, 1 / (1 + math.exp(-logit)))
        for hit in hits
        if draw(st.booleans())
        for logit in [draw(st.floats(-9, 9, width=32))]
    }
    return query, hits, matches


@given(answers())
def test_an_explanation_adds_up(
    answer: tuple[SearchQuery, list[Hit], dict[str, Match]],
) -> None:
    """Terms add up to the score in every form; the last rank is the final one."""
    query, hits, matches = answer

    ranked = rank_answer(query, hits, matches)

    assert [entry.final_rank for entry in ranked] == list(range(1, len(ranked) + 1))
    for entry in ranked:
        assert entry.explanation is not None
        total = math.fsum(term.value * term.weight for term in entry.explanation.terms)
        assert total == pytest.approx(entry.score, abs=1e-6)
        ranks = entry.explanation.ranks
        stages = ["retrieve", "rerank"]
        stages += ["diversity"] * query.ranking.are_embeddings_needed
        stages += ["interleave"] * query.all_modalities_included
        assert list(ranks) == stages
        assert ranks["retrieve"] == entry.retrieve_rank
        assert ranks[stages[-1]] == entry.final_rank


@given(answers())
def test_each_kind_keeps_its_own_order(
    answer: tuple[SearchQuery, list[Hit], dict[str, Match]],
) -> None:
    """Two modalities together are each ordered as alone; they alternate, the target first."""
    query, hits, matches = answer
    ranked = rank_answer(query, hits, matches)

    alone = {
        modality: rank_answer(
            replace(query, target_modality=modality, all_modalities_included=False),
            [hit for hit in hits if hit.modality is modality],
            matches,
        )
        for modality in query.modalities
    }
    kinds = [entry.modality for entry in ranked]
    for modality, own in alone.items():
        assert [entry.item_id for entry in ranked if entry.modality is modality] == ids(own)
    if query.all_modalities_included:
        turns = 2 * min(len(own) for own in alone.values())
        assert kinds[:turns] == [Modality.IMAGE, Modality.TEXT] * (turns // 2)


@given(answers())
def test_scored_items_rank_before_the_others_by_score(
    answer: tuple[SearchQuery, list[Hit], dict[str, Match]],
) -> None:
    """Within each modality; and dropped items are improbable, unscored or duplicates."""
    query, hits, matches = answer
    rule = query.ranking
    ranked = rank_answer(query, hits, matches)

    for modality in query.modalities:
        own = [entry for entry in ranked if entry.modality is modality]
        are_scored = [entry.match_logit is not None for entry in own]
        assert are_scored == sorted(are_scored, reverse=True)
        for is_scored in (True, False):
            scores = [entry.score for entry in own if (entry.match_logit is not None) is is_scored]
            assert all(later <= earlier + 1e-6 for earlier, later in pairwise(scores))
    if rule.min_probability is not None:
        assert all(
            entry.match_probability is not None and entry.match_probability >= rule.min_probability
            for entry in ranked
        )
    elif rule.duplicate_similarity is None:
        assert sorted(ids(ranked)) == sorted(hit.item_id for hit in hits)


def test_fusion_raises_items_that_the_bi_encoder_ranks_high() -> None:
    """By logit b stands first; with most of the weight on the similarity, a does."""
    hits = [Hit("a", 0.9), Hit("b", 0.1)]
    matches = {"a": Match(0.0, 0.5), "b": Match(1.0, 0.73)}
    added = replace(QUERY, ranking=RankingRule(fusion=FusionMethod.ADD, cross_encoder_weight=0.25))

    assert ids(rank_answer(QUERY, hits, matches)) == ["b", "a"]
    assert ids(rank_answer(added, hits, matches)) == ["a", "b"]


def test_duplicates_collapse_into_the_best() -> None:
    """Best by score, not by retrieval: b is a's double and scored higher."""
    hits = [pointed("a", 0.9, 0), pointed("b", 0.8, 1), pointed("c", 0.7, 80)]
    matches = {"a": Match(0.0, 0.5), "b": Match(1.0, 0.7), "c": Match(-1.0, 0.3)}
    query = replace(QUERY, ranking=RankingRule(duplicate_similarity=0.99))

    assert ids(rank_answer(query, hits, matches)) == ["b", "c"]


async def test_the_order_before_scoring_leaves_nothing_out_for_want_of_a_score() -> None:
    """The bi-encoder's order, with its diversity, is known at once."""
    hits = [pointed("a", 0.9, 0), pointed("b", 0.89, 0), pointed("c", 0.6, 90)]
    query = replace(QUERY, ranking=RankingRule(min_probability=0.9, duplicate_similarity=0.99))

    assert ids(await retrieved_order(query, hits)) == ["a", "c"]
    assert ids(rank_answer(query, hits, {})) == []


@pytest.mark.parametrize(
    ("field", "low"),
    [
        ("min_probability", 0.0),
        ("duplicate_similarity", -1.0),
    ],
)
def test_a_number_out_of_range_is_refused(field: str, low: float) -> None:
    for value in (low, 1.0):
        assert getattr(RankingRule(**{field: value}), field) == value  # type: ignore[arg-type]
    for value in (low - 0.01, 1.01, math.nan, math.inf):
        with pytest.raises(RankingInvalid, match=field):
            RankingRule(**{field: value})  # type: ignore[arg-type]


def by_neighbours(scores: Mapping[str, float]) -> StageOrder:
    """Returns the order of the neighbour model's scores."""
    return StageOrder(NeighbourStage([], []), scores)


STAGED_HITS = [Hit(name, 0.9 - place / 10) for place, name in enumerate("abcde")]
"""Of which "c", then "b" are reranked first."""
STAGED_MATCHES = {"c": Match(3.0, 0.9), "b": Match(2.0, 0.8), "a": Match(1.0, 0.7)}


def test_neighbours_order_the_first_hits_and_leave_the_others() -> None:
    """c and b trade places; a stays third by its logit, and d and e in retrieval order."""
    scores = {"c": -0.25, "b": 0.5}

    ranked = rank_answer(
        replace(QUERY, explained=True), STAGED_HITS, STAGED_MATCHES, stages=[by_neighbours(scores)]
    )

    assert [(each.item_id, each.ordered_by, each.score) for each in ranked] == [
        ("b", OrderedBy.NEIGHBOURS, 0.5),
        ("c", OrderedBy.NEIGHBOURS, -0.25),
        ("a", OrderedBy.RERANK, 1.0),
        ("d", OrderedBy.RETRIEVE, pytest.approx(0.6)),
        ("e", OrderedBy.RETRIEVE, pytest.approx(0.5)),
    ]
    assert ranked[0].explanation is not None
    assert [(each.name, each.value) for each in ranked[0].explanation.terms] == [
        ("neighbour_score", 0.5)
    ]
    assert list(ranked[0].explanation.ranks.items()) == [
        ("retrieve", 2),
        ("rerank", 2),
        ("neighbours", 1),
    ]


def test_the_order_that_neighbours_start_from_is_the_reranked_one() -> None:
    query = replace(QUERY, ranking=RankingRule(min_probability=0.75))

    hits = reranked_hits(query, STAGED_HITS, STAGED_MATCHES, Modality.IMAGE)

    assert [hit.item_id for hit in hits] == ["c", "b"]


def test_diversity_keeps_items_ordered_by_neighbours_first() -> None:
    """Three blocks, and an item of an earlier one never falls behind one of a later."""
    hits = [
        replace(hit, embedding=np.array([1.0, 0.0], np.float32))  # all alike
        for hit in STAGED_HITS
    ]
    query = replace(QUERY, ranking=RankingRule(relevance_weight=0.5), explained=True)

    ranked = rank_answer(
        query, hits, STAGED_MATCHES, stages=[by_neighbours({"c": -0.25, "b": 0.5})]
    )

    assert [each.item_id for each in ranked] == ["b", "c", "a", "d", "e"]
    # Half of -0.25, less half of the redundancy with "b", which is 1.
    assert ranked[1].score == pytest.approx(-0.625)
    assert ranked[1].explanation is not None
    assert sum(term.value * term.weight for term in ranked[1].explanation.terms) == pytest.approx(
        -0.625
    )
