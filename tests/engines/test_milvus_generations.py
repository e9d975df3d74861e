"""What a store without transactions can do wrong with notes, rules and those who follow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tandem.contract.deadline import Deadline
from tandem.errors import WriterRefused
from tandem.remote.chosen_engine import engine_shard
from tandem.remote.engine_shard import EngineShard
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemsQuery
from tandem.stages.notes import SetWriter
from tests.support.engines.milvus_shard import milvus_settings
from tests.support.item_store.made_items import FINGERPRINT, text_item

pytest.importorskip("milvus", reason="make test-engines installs Milvus")

from tandem.remote.milvus import followed_writes, writes

INDEX, NEXT = "scenes", "scenes@2"


@asynccontextmanager
async def services(folder: Path) -> AsyncIterator[tuple[EngineShard, EngineShard]]:
    """Yields two services of one shard."""
    one, two = (engine_shard(milvus_settings(folder)) for _ in range(2))
    assert one is not None
    assert two is not None
    try:
        yield one, two
    finally:
        await one.close()
        await two.close()


def soon() -> Deadline:
    return Deadline.after(60.0)


def upsert(item_id: str, index_id: str = INDEX, seed: int = 1, term: int = 0) -> Upsert:
    return Upsert(index_id, FINGERPRINT, [text_item(item_id, seed)], term=term)


async def begun(shard: EngineShard) -> int:
    """Has writes be noted from now on, and returns since when."""
    return (await shard.changes((await shard.changes(0, 1, soon())).sequence, 1, soon())).sequence


async def changed(shard: EngineShard, after: int) -> list[tuple[str, str]]:
    page = await shard.changes(after, 1_000, soon())
    assert page.changes is not None
    return [(each.index_id, each.item_id) for each in page.changes]


@pytest.mark.parametrize("is_opened_again", [False, True])
@pytest.mark.parametrize("term", [0, 1])
async def test_a_write_that_a_rule_overtakes_is_refused_and_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: int, *, is_opened_again: bool
) -> None:
    """Milvus has it already, maybe over what a follower wrote: it is a change of the other ones."""
    async with services(tmp_path) as (one, two):
        await two.write(SetWriter(NEXT, 1, is_open=True), soon())
        for index_id in (INDEX, NEXT):
            await one.write(upsert("a", index_id), soon())
        await two.write(SetWriter(INDEX, 1, is_open=term == 0), soon())
        after = await begun(one)
        upserting = writes.Writes._upsert

        async def late(self: writes.Writes, *arguments: object) -> None:
            await upserting(self, *arguments)  # type: ignore[arg-type]
            await two.write(SetWriter(INDEX, 2, is_open=term > 0), soon())
            if is_opened_again:
                await two.write(SetWriter(INDEX, 3, is_open=term == 0), soon())

        monkeypatch.setattr(writes.Writes, "_upsert", late)
        with pytest.raises(WriterRefused):
            await one.write(upsert("a", seed=2, term=term), soon())
        assert (NEXT, "a") in await changed(one, after)


async def test_a_follower_reads_what_another_service_wrote_and_noted(tmp_path: Path) -> None:
    """Contents as well, at once: it is told once of each change."""
    async with services(tmp_path) as (one, two):
        await two.write(upsert("a"), soon())
        after = await begun(one)
        for seed in range(2, 12):
            await two.write(upsert("a", seed=seed), soon())
            assert (INDEX, "a") in await changed(one, after)
            found = await one.get(ItemsQuery(INDEX, ["a"]), soon())
            assert found.items["a"].content == text_item("a", seed).content
            after = await begun(one)


async def test_a_follower_far_behind_another_begins_again_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next copy does not end the other's."""
    monkeypatch.setattr(followed_writes, "_BEHIND", 0)
    async with services(tmp_path) as (one, two):
        await one.write(upsert("a"), soon())
        behind = ahead = await begun(one)
        for item_id in "bcd":
            await two.write(upsert(item_id), soon())
            page = await one.changes(ahead, 10, soon())
            assert page.changes is not None
            assert [each.item_id for each in page.changes] == [item_id]
            ahead = page.changes[-1].sequence
            await one.changes(ahead, 10, soon())
        assert (await two.changes(behind, 10, soon())).changes is None
        behind = await begun(two)
        await one.write(upsert("e"), soon())
        assert await changed(one, ahead) == await changed(two, behind) == [(INDEX, "e")]
