"""Merging what shards found: the same as sorting everything."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tandem.stages.hit import Hit, merge_hits

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


@given(retrieved(), st.integers(1, 5), st.integers(0, 15), st.randoms(use_true_random=False))
def test_merging_shards_is_sorting_all_of_them(
    hits: list[Hit], shard_count: int, count: int, random: Random
) -> None:
    """However the items are spread, the answer is that of one shard with all of them."""
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


def test_ties_between_shards_sort_by_id() -> None:
    """Not to the shard that is asked first: "10" stands before "9", as ids compare."""
    first, second = [Hit("9", 0.5)], [Hit("8", 0.75), Hit("10", 0.5)]

    assert [hit.item_id for hit in merge_hits([first, second], 3)] == ["8", "10", "9"]
