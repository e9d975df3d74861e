"""Creates, promotes, rolls back and drops generations, on shards of this process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded, GenerationRefused, IndexIdInvalid, IndexNotFound
from tandem.search.indexes import kept_generations
from tandem.search.indexes.follower import FollowerProgress
from tandem.search.indexes.kept_generations import DROP, PROMOTE, ROLL_BACK, followed_generation
from tandem.stages.aliases import AliasRecord
from tandem.stages.notes import WriterRule
from tests.support.item_store.followed_index import LONG
from tests.support.orchestrator_svc.kept_index import FIRST, Orchestrating, soon
from tests.support.orchestrator_svc.local_shards import local_shards, until

Put = Callable[[AliasRecord, Deadline], Awaitable[AliasRecord]]


@asynccontextmanager
async def orchestrating(path: Path, count: int = 1) -> AsyncIterator[list[Orchestrating]]:
    texts: dict[str, str] = {}
    async with local_shards(path) as shards:
        each = [Orchestrating(shards, texts) for _ in range(count)]
        for one in each:
            await one.begin()
        try:
            yield each
        finally:
            for one in each:
                await one.end()


async def test_a_generation_is_made_promoted_rolled_back_and_dropped_under_writes(
    tmp_path: Path,
) -> None:
    async with orchestrating(tmp_path, 2) as (one, other):
        chance = random.Random(1)
        await one.write_at_random(chance, 100)
        is_over = asyncio.Event()
        writing = asyncio.create_task(one.write_at_random(chance, 10_000, is_over))
        made = await other.generations.create("photos", soon())
        assert (made.index_id, made.fingerprint) == ("photos@2", "model-b")
        await one.until_scanned()
        # Either orchestrator takes any request, whoever has the lease.
        assert await one.ask(PROMOTE) == "photos@2"
        assert await other.ask(ROLL_BACK) == "photos"
        assert (await one.record()).rolled_back_why == "why"
        assert await other.ask(PROMOTE) == "photos@2"
        is_over.set()
        await writing
        assert one.longest_seconds < 5.0
        assert await one.stored("photos@2") == one.texts
        assert await one.ask(ROLL_BACK) == "photos"
        assert await one.stored("photos") == one.texts
        assert await other.ask(DROP, "photos@2") == "photos"
        assert await one.stored("photos@2") == {}
        assert (await one.record()).next_number == 3


async def test_an_index_without_items_is_followed_by_another_model_too(tmp_path: Path) -> None:
    async with orchestrating(tmp_path) as (one,):
        await one.write("a", "text 1")
        await one.write("a", None)
        await one.generations.create("photos", soon())
        await one.until_scanned()
        assert await one.ask(PROMOTE) == "photos@2"
        assert await one.ask(DROP, "photos") == "photos@2"
        made = await one.generations.create("photos", soon())
        assert made.index_id == "photos@3"
        assert made.fingerprint != "model-b"


async def test_what_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    async with orchestrating(tmp_path) as (one,):
        with pytest.raises(IndexNotFound):
            await one.generations.create("photos", soon())
        await one.write("a", "text 1")
        with pytest.raises(IndexIdInvalid, match="photos@2"):
            await one.generations.create("photos@2", soon())
        with pytest.raises(GenerationRefused, match="create one"):
            await one.ask(PROMOTE)
        await one.write("b", f"{LONG} 2")
        await one.generations.create("photos", soon())
        with pytest.raises(GenerationRefused, match=r"photos@2 next to photos"):
            await one.generations.create("photos", soon())
        with pytest.raises(GenerationRefused, match="photos serves"):
            await one.ask(DROP, "photos")
        with pytest.raises(GenerationRefused, match="did not serve before"):
            await one.ask(ROLL_BACK)
        await one.until_scanned()
        with pytest.raises(GenerationRefused, match=r"1 items, photos 2 \(b: "):
            await one.ask(PROMOTE)
        assert await one.stored("photos") == one.texts
        await one.write("b", "text 3")  # writes are taken again
        assert await one.ask(PROMOTE) == "photos@2"
        record = await one.record()
        assert followed_generation(record) == record.previous == "photos"
        assert not followed_generation(replace(record, promoted_time=1.0))  # for a day
        assert await one.ask(DROP, "photos@1") == "photos@2"
        assert not (await one.record()).previous


async def test_a_half_built_generation_is_not_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.search.indexes.pace.ReembedPace.rest_seconds", lambda *_: 60.0)
    async with orchestrating(tmp_path) as (one,):
        for number in range(300):
            await one.write(f"item-{number}", f"text {number}")
        await one.generations.create("photos", soon())
        with pytest.raises(GenerationRefused, match="half-built"):
            await one.ask(PROMOTE)
        assert (await one.record()).serving == "photos"


async def test_a_fence_that_takes_too_long_gives_up_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation that serves takes writes again, and nothing is lost."""
    async with orchestrating(tmp_path) as (one,):
        await one.write("a", "text 1")
        await one.generations.create("photos", soon())
        await one.until_scanned()
        monkeypatch.setattr(kept_generations, "FENCE_SECONDS", 1e-9)
        with pytest.raises(GenerationRefused, match="its last 0 changes took over"):
            await one.ask(PROMOTE)
        await one.write("b", "text 2")
        assert (await one.record()).serving == "photos"
        monkeypatch.undo()
        assert await one.ask(PROMOTE) == "photos@2"
        assert await one.stored("photos@2") == one.texts


async def test_a_generation_is_dropped_where_no_model_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orchestrators without the second model cannot promote it, and must not keep it for ever."""
    async with orchestrating(tmp_path) as (one,):
        await one.write("a", "text 1")
        await one.generations.create("photos", soon())
        await one.until_scanned()
        await one.keeper.close()
        alone = Orchestrating(one.shards, one.texts, [FIRST])
        await alone.begin()
        with pytest.raises(DeadlineExceeded):
            await alone.generations.ask(PROMOTE, "photos", "why", "me", Deadline.after(0.5))
        with pytest.raises(GenerationRefused, match="request to promote is in progress"):
            await alone.ask(DROP, "photos@2")
        monkeypatch.setattr("tandem.search.indexes.generations._WAIT_SECONDS", 0.1)
        assert await alone.ask(DROP, "photos@2") == "photos"
        assert await alone.stored("photos@2") == {}
        await alone.end()


async def test_the_next_keeper_completes_what_a_killed_one_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any moment, also in the fence: one generation serves, and nothing is lost."""
    monkeypatch.setattr("tandem.search.indexes.keeper.LEASE_SECONDS", 0.3)
    chance = random.Random(3)
    async with local_shards(tmp_path) as shards:
        texts: dict[str, str] = {}
        caller = Orchestrating(shards, texts)
        await caller.book.begin(soon())
        await caller.write_at_random(chance, 100)
        await caller.generations.create("photos", soon())
        for _ in range(6):
            keeper = Orchestrating(shards, texts)
            await keeper.begin()
            wanted = ROLL_BACK if (await caller.record()).previous else PROMOTE
            asking = asyncio.create_task(caller.ask(wanted))
            writing = asyncio.create_task(caller.write_at_random(chance, 20))
            await asyncio.sleep(chance.uniform(0.4, 1.5))
            await keeper.end()
            asking.cancel()
            keeper = Orchestrating(shards, texts)
            await keeper.begin()
            await writing
            await until(lambda: caller.book.record("photos").wanted is None)
            await keeper.end()
            assert await caller.stored((await caller.record()).serving) == texts
        await caller.book.close()


async def test_what_served_stays_closed_if_its_keeper_ends_during_the_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else callers could write to it, and a rollback would wait until it is scanned again."""
    async with orchestrating(tmp_path, 2) as (one, other):
        await one.write("a", "text 1")
        await one.generations.create("photos", soon())
        await one.until_scanned()
        is_switched = asyncio.Event()
        for each in (one, other):
            put = each.book.put

            async def ending(
                record: AliasRecord, deadline: Deadline, put: Put = put
            ) -> AliasRecord:
                kept = await put(record, deadline)
                if kept.serving == "photos@2" and not is_switched.is_set():
                    is_switched.set()
                    await asyncio.sleep(60.0)
                return kept

            monkeypatch.setattr(each.book, "put", ending)

        async def ask() -> None:
            while not is_switched.is_set():  # a busy machine may refuse it for its fence
                with suppress(GenerationRefused):
                    await one.ask(PROMOTE)

        asking = asyncio.create_task(ask())
        await is_switched.wait()
        keeper = one if one.keeper._name == (await one.record()).lease.holder else other
        await keeper.keeper.close()
        for shard in one.shards:
            note = await shard.note("writer/photos", soon())
            assert not WriterRule.of(note).is_open
            progress = FollowerProgress.of(WriterRule.of(note))
            assert progress is not None
            assert progress.is_scanned
        if keeper is one:
            asking.cancel()
        else:
            await asking
