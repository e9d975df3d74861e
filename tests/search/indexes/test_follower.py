"""Follows an index into another by a second model, under writes, kills and late followers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tandem.contract.content import TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.search.item_changes import ItemPatch
from tandem.errors import StoreFull, WriterRefused
from tandem.local.shard.local_shard import LocalShard
from tandem.search.indexes.follower import Follower
from tandem.search.indexes.pace import ReembedPace
from tandem.stages.item_write import Delete, Patch
from tandem.stages.items import ItemsQuery
from tandem.stages.notes import SetWriter
from tandem.stages.shard import Shard
from tests.support.item_store.followed_index import (
    LONG,
    Caller,
    NumberEncoder,
    open_shard,
    stored_texts,
)

FIRST, SECOND = NumberEncoder("model-a", 4), NumberEncoder("model-b", 8)


def follower(shard: Shard, term: int, source: str = "a", target: str = "a@2") -> Follower:
    model = SECOND if target == "a@2" else FIRST
    return Follower(shard, source, target, model, model.fingerprint, term, ReembedPace(1.0, 2))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (what is awaited knows no event)
        await asyncio.sleep(0.01)


async def until_even(each: Follower) -> None:
    """Brings everything that was written before the call, as a promotion does."""
    await each.begin()
    running = asyncio.create_task(each.run())
    await until(lambda: each.progress.is_scanned)
    each.stop()
    await running
    page = await each._shard.changes(0, 1, Deadline.after(60))
    await each.follow(up_to=page.sequence)
    if not each.progress.is_scanned:  # the log was trimmed meanwhile
        await until_even(follower(each._shard, each._term, each._source_id, each._target_id))


async def followed_through_kills(shard: LocalShard, caller: Caller, seed: int) -> int:
    """Writes and follows; the next follower begins while the last one may still write."""
    chance, term, late = random.Random(seed), 0, list[asyncio.Task[None]]()
    source, target = ("a", "a@2") if caller.index_id == "a" else ("a@2", "a")
    writing = asyncio.create_task(caller.write(400))
    while not writing.done():
        term += 1
        each = follower(shard, 1000 * (source != "a") + term, source, target)
        await each.begin()
        running = asyncio.create_task(each.run())
        await asyncio.sleep(chance.uniform(0.05, 0.5))
        if chance.random() < 0.5:
            running.cancel()
        late.append(running)
    await writing
    await until_even(follower(shard, 1000 * (source != "a") + term + 1, source, target))
    for running in late:
        running.cancel()
        with suppress(asyncio.CancelledError, WriterRefused):
            await running
    return 1000 * (source != "a") + term + 1


@pytest.mark.parametrize(
    ("seed", "kept_log_count"), [pytest.param(1, 100_000, marks=pytest.mark.slow), (2, 300)]
)
async def test_the_other_index_has_each_write_once_it_is_followed_both_ways(
    tmp_path: Path, seed: int, kept_log_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a log so short that it is trimmed, the scan begins again."""
    monkeypatch.setattr("tandem.search.indexes.follower._SAVE_SECONDS", 0.05)
    async with open_shard(tmp_path, kept_log_count) as shard:
        caller = Caller(shard, "a", FIRST, seed)
        await caller.write(200)
        term = await followed_through_kills(shard, caller, seed)
        assert await stored_texts(shard, "a@2", SECOND) == caller.texts

        at = follower(shard, term)
        await at.begin()
        closed = SetWriter("a", term, is_open=False, progress=at.progress.followed_back())
        await shard.write(closed, Deadline.after(60))
        await shard.write(SetWriter("a@2", term, is_open=True), Deadline.after(60))
        other = Caller(shard, "a@2", SECOND, seed + 1)
        other.texts = dict(caller.texts)
        await followed_through_kills(shard, other, seed)
        assert await stored_texts(shard, "a", FIRST) == other.texts


async def test_changed_attributes_and_renamed_items_are_not_encoded_again(tmp_path: Path) -> None:
    """Nor is any after a new scan; a new content is."""
    async with open_shard(tmp_path) as shard:
        caller = Caller(shard, "a", FIRST, 1)
        await caller.store({f"item-{n}": f"text {n}" for n in range(100)})
        await until_even(follower(shard, 1))
        count = SECOND.encoded_count

        await caller.store({"renamed": "text 7", "new": "text 100"})
        await shard.write(Delete("a", ["item-7"]), Deadline.after(60))
        patches = [ItemPatch(f"item-{n}", {"number": n, "price": 1}) for n in range(100)]
        await shard.write(Patch("a", patches), Deadline.after(60))
        await until_even(follower(shard, 2))

        assert SECOND.encoded_count == count + 1
        found = await shard.get(ItemsQuery("a@2", ["item-3", "renamed"]), Deadline.after(60))
        assert found.items["item-3"].attributes == {"number": 3, "price": 1}
        assert found.items["renamed"].content == TextContent("text 7")


async def test_a_follower_that_claims_too_much_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positive control: progress that is saved before it is made loses items."""
    async with open_shard(tmp_path) as shard:
        caller = Caller(shard, "a", FIRST, 1)
        await caller.write(200)
        end = (await shard.changes(0, 1, Deadline.after(60))).sequence
        text = f'{{"is_scanned": true, "sequence": {end - 50}}}'
        await shard.write(SetWriter("a@2", 1, is_open=False, progress=text), Deadline.after(60))
        await until_even(follower(shard, 2))
        assert await stored_texts(shard, "a@2", SECOND) != caller.texts


async def test_what_the_model_cannot_encode_is_named_and_left_out(tmp_path: Path) -> None:
    """Nor does the state before stay; once it can be encoded, it is there."""
    async with open_shard(tmp_path) as shard:
        caller = Caller(shard, "a", FIRST, 1)
        await caller.store({"x": "text 1", "y": "text 2"})
        await until_even(follower(shard, 1))
        await caller.store({"x": f"{LONG} 3"})
        each = follower(shard, 2)
        await until_even(each)
        assert await stored_texts(shard, "a@2", SECOND) == {"y": "text 2"}
        assert list(each.progress.failed) == ["x"]
        await caller.store({"x": "text 4"})
        await until_even(each := follower(shard, 3))
        assert await stored_texts(shard, "a@2", SECOND) == caller.texts
        assert each.progress.failed == {}


async def test_a_full_store_is_waited_for_and_harms_no_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why it waits, and continues once there is room; a wait is no work to rest after."""
    worked_seconds = [0.0]

    def rest_seconds(_: ReembedPace, worked: float) -> float:
        worked_seconds.append(worked)
        return 0.0

    monkeypatch.setattr(ReembedPace, "rest_seconds", rest_seconds)
    async with open_shard(tmp_path, map_bytes=8 << 20) as shard:
        caller = Caller(shard, "a", FIRST, 1)
        for size, first in ((9_000, 0), (10, 10_000)):  # then small ones, until none fits
            with suppress(StoreFull):
                for start in range(first, first + 10_000, 10):
                    numbers = range(start, start + 10)
                    await caller.store({f"item-{n:05}": f"{'x' * size} {n}" for n in numbers})
        each = follower(shard, 1)
        await each.begin()
        running = asyncio.create_task(each.run())
        await until(lambda: "full" in each.progress.waits_for)
        await asyncio.sleep(2.0)
        assert await stored_texts(shard, "a", FIRST) == caller.texts
        for start in range(0, 400, 50):
            ids = [f"item-{n:05}" for n in range(start, start + 50)]
            await shard.write(Delete("a", ids), Deadline.after(60))
            for item_id in ids:
                del caller.texts[item_id]
        await until(lambda: each.progress.is_scanned)
        each.stop()
        await running
        assert max(worked_seconds) < 2.0
        await until_even(follower(shard, 2))
        assert await stored_texts(shard, "a@2", SECOND) == caller.texts
