"""Orders: merging equals sorting everything, and the cross-encoder's order stands first."""

from itertools import groupby
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from orchestrator_svc.ranking import Hit, MatchScore, merge_hits, rank_hits

# Few different values, so that ties are common.
values = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])


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


@given(retrieved(), st.integers(1, 5), st.integers(0, 15), st.randoms(use_true_random=False))
def test_merging_shards_is_sorting_all_of_them(
    hits: list[Hit], shard_count: int, count: int, random: Random
) -> None:
    """However the items are spread, the answer is that of one shard that has them all."""
    shards: list[list[Hit]] = [[] for _ in range(shard_count)]
    for hit in hits:
        random.choice(shards).append(hit)

    assert merge_hits(shards, count) == hits[:count]


@given(retrieved(), st.integers(1, 5), st.integers(0, 5), st.randoms(use_true_random=False))
def test_merging_only_the_best_of_each_shard_loses_nothing(
    hits: list[Hit], shard_count: int, count: int, random: Random
) -> None:
    """Each shard sends as many as are wanted in all, ties cut by id: that is enough."""
    shards: list[list[Hit]] = [[] for _ in range(shard_count)]
    for hit in hits:
        random.choice(shards).append(hit)

    assert merge_hits([each[:count] for each in shards], count) == hits[:count]


def test_ties_between_shards_go_to_the_smaller_id() -> None:
    """Not to the shard that is asked first: "10" stands before "9", as ids compare."""
    first, second = [Hit("9", 0.5)], [Hit("8", 0.75), Hit("10", 0.5)]

    assert [hit.item_id for hit in merge_hits([first, second], 3)] == ["8", "10", "9"]


def test_no_hits_merge_to_none() -> None:
    """Neither no shards nor empty ones are an error."""
    assert merge_hits([], 5) == []
    assert merge_hits([[], []], 5) == []


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
