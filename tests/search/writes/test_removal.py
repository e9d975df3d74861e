"""Removals over several shards: whole, or an error that says what is unknown."""

import asyncio

import pytest

from tandem import errors
from tandem.contract.content import TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import Removal
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.item_changes import ItemsRemoval
from tandem.search.writes.consistency_token import make_token
from tests.support.orchestrator_svc.downstream import Stack, ingest, raising, stack


async def fill(behind: Stack) -> dict[int, str]:
    """Stores one item on each shard and returns its id."""
    owned = {number: behind.id_on(number) for number in range(len(behind.shards))}
    items = [IncomingItem(item_id, TextContent("0")) for item_id in owned.values()]
    assert not any((await ingest(behind.ingester, items)).outcomes)
    return owned


async def remove(behind: Stack, item_ids: list[str], request_id: str = "") -> Removal:
    """Removes from "scenes"."""
    return await behind.remover.remove(
        ItemsRemoval(index_id="scenes", item_ids=item_ids, request_id=request_id),
        Deadline.after(10),
    )


async def test_a_removal_tells_how_many_and_how_far() -> None:
    """Over two shards, each of which has made two writes by then."""
    async with stack() as behind:
        owned = await fill(behind)

        assert await remove(behind, [*owned.values(), "never"]) == Removal(
            2, make_token({0: 2, 1: 2}, behind.shard_map)
        )


async def test_a_shard_that_is_down_fails_the_removal_and_leaves_nothing_unsaid() -> None:
    """The other shard's item is gone all the same; of this one the outcome is unknown."""
    async with stack(shard_count=3) as behind:
        owned = await fill(behind)
        await behind.stop_shard(1)

        with pytest.raises(errors.ServiceUnavailable, match="index-1") as caught:
            await remove(behind, list(owned.values()))

        assert "2 items are removed" in caught.value.message
        assert f"1 ids is unknown ('{owned[1]}')" in caught.value.message
        assert caught.value.metadata["unknown_count"] == "1"
        assert caught.value.metadata["removed_count"] == "2"
        assert not behind.shards[0].items["scenes"]
        assert behind.shards[1].items["scenes"]
        assert not behind.shards[2].items["scenes"]


async def test_a_refusing_shard_is_distinguished_from_a_silent_one() -> None:
    """Items on the shard that refused are unchanged: that much is known."""
    async with stack() as behind:
        owned = await fill(behind)
        behind.shards[0].before["DeleteItems"] = raising(errors.Overloaded(what="writes"))

        with pytest.raises(errors.Overloaded, match="1 ids were refused") as caught:
            await remove(behind, list(owned.values()))

        assert caught.value.metadata["refused_count"] == "1"
        assert caught.value.metadata["unknown_count"] == "0"


async def test_one_shards_failure_does_not_cancel_the_others_deletes() -> None:
    """Otherwise their outcome would be unknown."""
    async with stack() as behind:
        owned = await fill(behind)

        async def slow(request: object) -> None:
            await asyncio.sleep(0.3)

        behind.shards[0].before["DeleteItems"] = raising(errors.Overloaded(what="writes"))
        behind.shards[1].before["DeleteItems"] = slow

        with pytest.raises(errors.Overloaded, match="1 items are removed"):
            await remove(behind, list(owned.values()))

        assert not behind.shards[1].items["scenes"]


async def test_the_outcome_of_the_ids_fits_the_error_message() -> None:
    """512 characters do, whatever the ids are and however long the shard's message is."""
    async with stack(shard_count=1) as behind:
        await fill(behind)
        behind.shards[0].before["DeleteItems"] = raising(
            errors.ServiceUnavailable(service="index-0", why="so " * 500)
        )

        with pytest.raises(errors.ServiceUnavailable) as caught:
            await remove(behind, [f"{number:03}" + "\U0001f415" * 60 for number in range(256)])

        assert "256 ids is unknown" in caught.value.message[:512]
        assert "repeat the call" in caught.value.message[:512]


async def test_a_repeated_removal_is_answered_as_the_first_time() -> None:
    """The items were stored again in between and stay; another id removes them."""
    async with stack() as behind:
        owned = await fill(behind)
        first = await remove(behind, list(owned.values()), "same")
        await fill(behind)

        assert await remove(behind, list(owned.values()), "same") == first
        assert all(shard.items["scenes"] for shard in behind.shards)

        assert (await remove(behind, list(owned.values()), "other")).removed_count == 2
        assert not any(shard.items["scenes"] for shard in behind.shards)


async def test_an_overlong_request_id_is_refused_before_any_call() -> None:
    async with stack() as behind:
        with pytest.raises(errors.RequestIdInvalid):
            await remove(behind, ["a"], "x" * 65)

        assert not any(shard.calls for shard in behind.shards)
