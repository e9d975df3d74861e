"""The final order: the cross-encoder's stands first, and what else a search may ask of it."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from orchestrator_svc.depth import Depth
from orchestrator_svc.hit import Hit, MatchScore
from orchestrator_svc.query import QueryPart, SearchQuery
from orchestrator_svc.ranking import RankedHit, rank_answer
from tandem.content import Modality, TextContent

# Few different values, so that ties are common.
values = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])


QUERY = SearchQuery(
    parts=(QueryPart(TextContent("1")),),
    index_id="scenes",
    target_modality=Modality.IMAGE,
    depth=Depth.of(None, None, None),
)


def rank_hits(hits: list[Hit], matches: dict[str, MatchScore]) -> list[RankedHit]:
    """Returns the order of a search that asks for nothing else."""
    return rank_answer(QUERY, hits, matches)


def in_order(hits: list[Hit]) -> list[Hit]:
    """Returns hits best first, ties by smaller item id: what a shard answers with."""
    return sorted(hits, key=lambda hit: (-hit.similarity, hit.item_id))


@st.composite
def retrieved(draw: st.DrawFn) -> list[Hit]:
    """Yields up to 12 hits of different ids, in retrieval order."""
    ids = draw(st.lists(st.integers(0, 50).map(str), max_size=12, unique=True))
    return in_order([Hit(item_id, draw(values)) for item_id in ids])


@st.composite
def scored(draw: st.DrawFn) -> tuple[list[Hit], dict[str, MatchScore]]:
    """Yields hits, of which some are scored."""
    hits = draw(retrieved())
    matches = {hit.item_id: MatchScore(draw(values), 0.5) for hit in hits if draw(st.booleans())}
    return hits, matches


@given(scored())
def test_ranking_is_a_permutation(case: tuple[list[Hit], dict[str, MatchScore]]) -> None:
    """Nothing is lost or doubled; both ranks count from 1 without gaps."""
    hits, matches = case

    ranked = rank_hits(hits, matches)

    assert [entry.final_rank for entry in ranked] == list(range(1, len(hits) + 1))
    assert {entry.retrieve_rank: entry.hit for entry in ranked} == dict(enumerate(hits, start=1))
    assert all(entry.match == matches.get(entry.hit.item_id) for entry in ranked)


@given(scored())
def test_scored_hits_stand_first_by_logit(case: tuple[list[Hit], dict[str, MatchScore]]) -> None:
    """Then the others; ties, and the others, as they were retrieved."""
    ranked = rank_hits(*case)

    are_scored = [entry.match is not None for entry in ranked]
    assert are_scored == sorted(are_scored, reverse=True)
    logits = [entry.match.logit for entry in ranked if entry.match]
    assert logits == sorted(logits, reverse=True)
    for _, tied in groupby(ranked, key=lambda entry: entry.match and entry.match.logit):
        ranks = [entry.retrieve_rank for entry in tied]
        assert ranks == sorted(ranks)


@given(retrieved())
def test_without_scores_the_order_is_that_of_retrieval(hits: list[Hit]) -> None:
    """A search with reranking disabled, or of two of a kind."""
    assert [entry.hit for entry in rank_hits(hits, {})] == hits


def test_a_worked_example() -> None:
    """Retrieved a b c d; b and d scored 2 and 3, a scored -9, c not: d b a c."""
    hits = [Hit("a", 0.9), Hit("b", 0.8), Hit("c", 0.7), Hit("d", 0.6)]
    matches = {
        "a": MatchScore(-9.0, 0.0),
        "b": MatchScore(2.0, 0.9),
        "d": MatchScore(3.0, 0.95),
        "gone": MatchScore(99.0, 1.0),
    }

    ranked = rank_hits(hits, matches)

    assert [entry.hit.item_id for entry in ranked] == ["d", "b", "a", "c"]
    assert [entry.retrieve_rank for entry in ranked] == [4, 2, 1, 3]
    assert ranked[-1].match is None
