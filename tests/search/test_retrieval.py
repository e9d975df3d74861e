"""Searches over four shards of which some are down, late, or stale: never silently degraded."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tandem import errors
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.item_changes import ItemsRemoval
from tandem.contract.search.query import Depth, SearchQuery, WeightedPart
from tandem.search.writes.consistency_token import make_token
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.orchestrator_svc.downstream import Stack, ingest, raising, stack
from tests.support.orchestrator_svc.scripted import Before

ITEM_COUNT = 60


async def fill(behind: Stack, index_id: str = "scenes") -> None:
    """Stores images at 0, 1, 2 … degrees, scored by the reranker from near to far."""
    items = [IncomingItem(f"image-{n}", ImageContent(str(n).encode())) for n in range(ITEM_COUNT)]
    ingested = await ingest(behind.ingester, items, index_id=index_id)
    assert not any(ingested.outcomes)
    for shard in behind.shards:
        shard.logits = {item.item_id: -float(n) for n, item in enumerate(items)}


@asynccontextmanager
async def four_shards() -> AsyncIterator[Stack]:
    """Yields a filled stack."""
    async with stack(shard_count=4) as behind:
        await fill(behind)
        yield behind


@pytest.fixture(name="filled")
async def _filled() -> AsyncIterator[Stack]:
    async with four_shards() as behind:
        yield behind


def count_on(behind: Stack, *shards: int) -> int:
    """Returns how many items live on the shards, as the shard map has it."""
    owners = [behind.shard_map.owner("scenes", f"image-{n}") for n in range(ITEM_COUNT)]
    return sum(owner in shards for owner in owners)


async def search(
    behind: Stack,
    *,
    index_id: str = "scenes",
    is_full: bool = False,
    tokens: Sequence[str] = (),
    rerank_disabled: bool = False,
    content_included: bool = False,
    seconds: float = 10.0,
) -> SearchResult:
    """Searches for what is near 0 degrees."""
    query = SearchQuery(
        parts=(WeightedPart(TextContent("0")),),
        index_id=index_id,
        target_modality=Modality.IMAGE,
        depth=Depth(retrieve_k=20, rerank_k=10, return_n=10),
        rerank_disabled=rerank_disabled,
        content_included=content_included,
        consistency_tokens=tokens,
        full_coverage_required=is_full,
    )
    return await behind.searcher.search(query, Deadline.after(seconds))


def nearest_without(behind: Stack, *shards: int) -> list[str]:
    """Returns the ids of the ten nearest items that live on other shards."""
    ids = [f"image-{n}" for n in range(ITEM_COUNT)]
    return [each for each in ids if behind.shard_map.owner("scenes", each) not in shards][:10]


def ids(answer: SearchResult) -> list[str]:
    """Returns the items found, best first."""
    return [item.item_id for item in answer.items]


def stalling(seconds: float = 30.0) -> Before:
    """Returns what makes a method late."""

    async def before(request: object) -> None:
        await asyncio.sleep(seconds)

    return before


def partial_count(outcome: str, reason: str) -> float:
    """Returns what the counter of partial searches says."""
    return (
        REGISTRY.get_sample_value(
            "tandem_orchestrator_partial_searches_total", {"outcome": outcome, "reason": reason}
        )
        or 0.0
    )


@pytest.mark.parametrize("number", range(4))
async def test_one_shard_down_leaves_three_and_is_reported(filled: Stack, number: int) -> None:
    """Whichever it is, the answer has the others' items, their number and the total."""
    await search(filled)
    await filled.stop_shard(number)
    before = partial_count("answered", "SERVICE_UNAVAILABLE")

    answer = await search(filled, content_included=True)

    assert ids(answer) == nearest_without(filled, number)
    assert all(item.content for item in answer.items)
    assert answer.coverage.answered_shard_count == 3
    assert answer.coverage.shard_count == 4
    assert answer.coverage.covered_item_count == ITEM_COUNT - count_on(filled, number)
    assert answer.coverage.item_count == ITEM_COUNT
    [(missing, reason)] = answer.coverage.missing_shards.items()
    assert (missing, reason) == (number, "SERVICE_UNAVAILABLE")
    assert partial_count("answered", "SERVICE_UNAVAILABLE") == before + 1


async def test_a_shard_that_never_answered_leaves_the_total_open(filled: Stack) -> None:
    """It is down since before the first search, so its item count is unknown."""
    await filled.stop_shard(2)

    coverage = (await search(filled)).coverage

    assert coverage.covered_item_count == ITEM_COUNT - count_on(filled, 2)
    assert coverage.item_count is None


async def test_full_coverage_refuses_a_search_if_a_shard_is_down(filled: Stack) -> None:
    """The error names what was available; with all shards it answers."""
    assert ids(await search(filled, is_full=True)) == nearest_without(filled)
    await filled.stop_shard(1)
    before = partial_count("refused", "SERVICE_UNAVAILABLE")

    with pytest.raises(
        errors.ShardsMissing, match=r"3 of 4 shards answered.*ask without full_coverage_required"
    ) as caught:
        await search(filled, is_full=True)

    assert caught.value.metadata == {
        "missing_shards": "1",
        "answered_shard_count": "3",
        "shard_count": "4",
    }
    assert partial_count("refused", "SERVICE_UNAVAILABLE") == before + 1


@pytest.mark.parametrize("minimum_coverage", [0.1, 0.9])
async def test_less_than_the_minimum_is_refused(minimum_coverage: float) -> None:
    """Two of four shards have about half of the items: above one setting, below the other."""
    async with stack(shard_count=4, minimum_coverage=minimum_coverage) as behind:
        await fill(behind)
        await search(behind)
        for number in (0, 1):
            await behind.stop_shard(number)

        if minimum_coverage < 0.5:
            assert ids(await search(behind)) == nearest_without(behind, 0, 1)
        else:
            with pytest.raises(errors.ShardsMissing):
                await search(behind)


async def test_the_minimum_is_of_items_not_of_shards() -> None:
    """All items are on shard 0 of two: without 0 nothing is left, without 1 nothing is lost."""
    for down, is_answered in ((0, False), (1, True)):
        async with stack(shard_count=2, minimum_coverage=0.6) as behind:
            item = IncomingItem(behind.id_on(0), ImageContent(b"0"))
            await ingest(behind.ingester, [item])
            await search(behind, rerank_disabled=True)
            await behind.stop_shard(down)

            if is_answered:
                answer = await search(behind, rerank_disabled=True)
                assert ids(answer) == [item.item_id]
                assert answer.coverage.covered_item_count == answer.coverage.item_count
                assert answer.coverage.answered_shard_count == 1
            else:
                with pytest.raises(errors.ShardsMissing):
                    await search(behind, rerank_disabled=True)


async def test_all_shards_down_is_unavailable_at_once(filled: Stack) -> None:
    for number in range(4):
        await filled.stop_shard(number)

    async with asyncio.timeout(90):
        with pytest.raises(errors.ShardsMissing, match="0 of 4"):
            await search(filled, seconds=240.0)


@pytest.mark.parametrize("lost", [0, 1])
async def test_losing_either_of_two_uneven_shards_is_answered(lost: int) -> None:
    """Nothing is demanded by default; with both lost there is nothing to answer with."""
    async with stack(shard_count=2) as behind:
        await fill(behind)
        assert count_on(behind, 0) != count_on(behind, 1)
        await search(behind)
        await behind.stop_shard(lost)

        answer = await search(behind)

        assert ids(answer) == nearest_without(behind, lost)
        assert list(answer.coverage.missing_shards) == [lost]
        await behind.stop_shard(1 - lost)
        with pytest.raises(errors.ShardsMissing, match="retry later, or start the missing ones"):
            await search(behind)


async def test_a_late_shard_is_not_waited_for_and_the_rest_is_reranked() -> None:
    """It gets half of the time; the other half is enough for everything else."""

    async def check(factor: float) -> None:
        async with four_shards() as behind:
            behind.shards[3].before["SearchEmbeddings"] = stalling(300.0)
            start_time = time.monotonic()

            answer = await search(behind, seconds=2.0 * factor, content_included=True)

            # Half of the time, and at most 2 s of it.
            assert 0.8 * min(factor, 2) < time.monotonic() - start_time < 1.95 * factor
            assert ids(answer) == nearest_without(behind, 3)
            assert all(item.match_logit is not None for item in answer.items)
            [(missing, reason)] = answer.coverage.missing_shards.items()
            assert (missing, reason) == (3, "DEADLINE_EXCEEDED")

    await holds_with_longer_times(check)


async def test_a_shard_that_hangs_costs_a_patient_caller_no_half_of_its_time(
    filled: Stack,
) -> None:
    """Two seconds, of 240."""
    filled.shards[3].before["SearchEmbeddings"] = stalling(300.0)

    async with asyncio.timeout(90):
        answer = await search(filled, seconds=240.0)

    assert ids(answer) == nearest_without(filled, 3)
    assert list(answer.coverage.missing_shards.values()) == ["DEADLINE_EXCEEDED"]


async def test_a_late_shard_is_awaited_if_all_are_required() -> None:
    """Even past its share: a late answer is better than a refusal that takes as long."""

    async def check(factor: float) -> None:
        async with four_shards() as behind:
            behind.shards[3].before["SearchEmbeddings"] = stalling(1.2 * factor)

            answer = await search(behind, seconds=2.0 * factor, is_full=True, rerank_disabled=True)

            assert ids(answer) == nearest_without(behind)

    await holds_with_longer_times(check)


async def test_a_refusal_is_not_put_off_by_a_late_shard() -> None:
    """The first failing shard rules out full coverage; the late one gets its share, no more."""

    async def check(factor: float) -> None:
        async with four_shards() as behind:
            behind.shards[0].before["SearchEmbeddings"] = raising(
                errors.ItemCorrupt(item_id="image-0", why="its checksum is wrong")
            )
            behind.shards[3].before["SearchEmbeddings"] = stalling(300.0)
            start_time = time.monotonic()

            with pytest.raises(errors.ShardsMissing) as caught:
                await search(behind, seconds=2.0 * factor, is_full=True)

            assert time.monotonic() - start_time < 1.95 * factor
            assert "shard 0: ITEM_CORRUPT" in caught.value.message
            assert "shard 3: DEADLINE_EXCEEDED" in caught.value.message

    await holds_with_longer_times(check)


async def test_all_shards_late_is_a_deadline_exceeded(filled: Stack) -> None:
    for shard in filled.shards:
        shard.before["SearchEmbeddings"] = stalling()

    with pytest.raises(errors.DeadlineExceeded):
        await search(filled, seconds=0.5)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.ServiceUnavailable(service="index-1", why="draining"), "SERVICE_UNAVAILABLE"),
        (errors.DeadlineExceeded(what="the search"), "DEADLINE_EXCEEDED"),
        (errors.ItemCorrupt(item_id="a", why="its checksum is wrong"), "ITEM_CORRUPT"),
    ],
)
async def test_a_shard_that_cannot_is_missing_by_its_reason(
    filled: Stack, error: errors.TandemError, reason: str
) -> None:
    filled.shards[1].before["SearchEmbeddings"] = raising(error)

    answer = await search(filled)

    assert ids(answer) == nearest_without(filled, 1)
    assert list(answer.coverage.missing_shards.values()) == [reason]


@pytest.mark.parametrize(
    "error",
    [
        errors.ModelMismatch(request="a", index="b"),
        errors.ShardMapMismatch(request_version=1, shard_version=2),
        errors.Overloaded(what="searches"),
        errors.InternalFault(why="a bug"),
    ],
)
async def test_any_other_refusal_of_one_shard_is_the_searchs(
    filled: Stack, error: errors.TandemError
) -> None:
    """Neither the caller's fault nor a bug of ours is hidden by the other shards' items."""
    filled.shards[1].before["SearchEmbeddings"] = raising(error)

    with pytest.raises(type(error)) as caught:
        await search(filled)

    assert caught.value.message == error.message


async def test_an_index_that_only_the_missing_shard_may_know_is_not_called_unknown(
    filled: Stack,
) -> None:
    """The shards that answered do not know it; whether the missing one does is unknown."""
    await filled.stop_shard(0)

    with pytest.raises(errors.ShardsMissing):
        await search(filled, index_id="elsewhere")


async def test_a_late_shard_that_alone_knows_the_index_is_awaited() -> None:
    """That the others do not know the index is not an answer."""

    async def check(factor: float) -> None:
        async with stack(shard_count=2, minimum_coverage=0.0) as behind:
            item = IncomingItem(behind.id_on(1), ImageContent(b"0"))
            await ingest(behind.ingester, [item])
            behind.shards[1].before["SearchEmbeddings"] = stalling(0.8 * factor)

            answer = await search(behind, seconds=1.4 * factor, rerank_disabled=True)

            assert ids(answer) == [item.item_id]

    await holds_with_longer_times(check)


async def test_contents_are_whole_or_an_error(filled: Stack) -> None:
    """A shard that found items but cannot read them fails the search: a hit without content means
    only that the item was deleted.
    """
    filled.shards[filled.shard_map.owner("scenes", "image-0")].before["GetItems"] = raising(
        errors.ServiceUnavailable(service="the shard", why="it just died")
    )

    with pytest.raises(errors.ServiceUnavailable, match="just died"):
        await search(filled, content_included=True)


async def test_a_token_is_sent_to_the_shards_that_it_names(filled: Stack) -> None:
    """It is their minimum sequence; the other shards get none."""
    filled.shards[0].sequence, filled.shards[2].sequence = 9, 4
    tokens = [
        make_token({0: 7}, filled.shard_map),
        make_token({0: 9, 2: 4}, filled.shard_map),
        make_token({}, filled.shard_map),
    ]

    answer = await search(filled, tokens=tokens)

    assert ids(answer) == nearest_without(filled)
    minima = [
        shard.requests("SearchEmbeddings")[-1].minimum_sequence  # type: ignore[attr-defined]
        for shard in filled.shards
    ]
    assert minima == [9, 0, 4, 0]


async def test_a_lagging_shard_fails_the_search_by_name(filled: Stack) -> None:
    """A stale answer is never returned, not even a flagged one."""
    token = make_token({1: filled.shards[1].sequence + 1}, filled.shard_map)

    with pytest.raises(errors.SequenceNotReached):
        await search(filled, tokens=[token])


async def test_a_shard_that_knows_no_sequences_fails_a_search_with_a_token() -> None:
    """A shard of an earlier version would ignore the token."""
    async with stack(shard_count=1) as behind:
        await fill(behind)

        async def forget(request: object) -> None:
            request.ClearField("minimum_sequence")  # type: ignore[attr-defined]

        behind.shards[0].before["SearchEmbeddings"] = forget
        token = make_token({0: 99}, behind.shard_map)

        assert ids(await search(behind))
        with pytest.raises(errors.SequenceNotReached):
            await search(behind, tokens=[token])


async def test_a_shard_that_a_token_names_may_not_be_missing(filled: Stack) -> None:
    """The others do not have what was written; the absence of any other shard does not matter."""
    token = make_token({1: filled.shards[1].sequence}, filled.shard_map)
    await filled.stop_shard(0)

    assert ids(await search(filled, tokens=[token])) == nearest_without(filled, 0)
    await filled.stop_shard(1)
    with pytest.raises(errors.ShardsMissing):
        await search(filled, tokens=[token])


async def test_a_bad_token_is_refused_before_any_call(filled: Stack) -> None:
    encoded = len(filled.encoder.calls)

    with pytest.raises(errors.ConsistencyTokenInvalid):
        await search(filled, tokens=["bad"])

    assert len(filled.encoder.calls) == encoded


async def test_every_shard_gets_the_shard_maps_version() -> None:
    async with stack(shard_count=2, shard_map_version=7) as behind:
        await fill(behind)
        await search(behind)
        await behind.remover.remove(
            ItemsRemoval(index_id="scenes", item_ids=[f"image-{n}" for n in range(9)]),
            Deadline.after(5),
        )

        for shard in behind.shards:
            for method in ("SearchEmbeddings", "UpsertItems", "DeleteItems"):
                [request] = shard.requests(method)
                assert request.shard_map_version == 7  # type: ignore[attr-defined]
