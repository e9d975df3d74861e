"""Promotes and rolls back generations in real engines, over two services of one shard."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tandem.contract.content import TextContent
from tandem.errors import GenerationRefused, IndexNotFound
from tandem.search.indexes.kept_generations import DROP, PROMOTE, ROLL_BACK
from tandem.stages.items import ItemsQuery
from tests.support.engines.shard_kinds import SHARDS
from tests.support.orchestrator_svc.kept_index import Orchestrating, soon


class OverEngine(Orchestrating):
    """Reads what is stored as any caller does."""

    async def stored(self, index_id: str) -> dict[str, str]:
        texts: dict[str, str] = {}
        [shard] = self.shards
        try:
            ids = await shard.list_item_ids(index_id, "", 1_000, soon())
        except IndexNotFound:
            return {}
        for start in range(0, len(ids), 64):
            query = ItemsQuery(index_id, ids[start : start + 64], encodings_included=True)
            found = await shard.get(query, soon())
            for item_id, item in found.items.items():
                assert isinstance(item.content, TextContent)
                texts[item_id] = item.content.text
        return texts


@asynccontextmanager
async def orchestrating(kind: str, folder: Path) -> AsyncIterator[list[OverEngine]]:
    texts: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        shards = [await stack.enter_async_context(SHARDS[kind].open(folder)) for _ in range(2)]
        each = [OverEngine([shard], texts) for shard in shards]
        for one in each:
            await one.begin()
            stack.push_async_callback(one.end)
        yield each


async def asked(one: Orchestrating, kind: str) -> str:
    """Asks until the last changes are brought in time, for which Milvus may be too slow."""
    while True:
        try:
            return await one.ask(kind)
        except GenerationRefused as error:
            if "write less" not in error.message:
                raise
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("kind", [each for each in SHARDS if SHARDS[each].is_shared])
async def test_generations_are_promoted_and_rolled_back_under_writes(
    kind: str, tmp_path: Path
) -> None:
    """Nothing that was acknowledged is missing or old in the generation that serves."""
    async with orchestrating(kind, tmp_path / "shard") as (one, other):
        chance = random.Random(1)
        await one.write_at_random(chance, 60)
        is_over = asyncio.Event()

        async def write() -> None:
            while not is_over.is_set():
                await one.write_at_random(chance, 1, is_over)
                await asyncio.sleep(0.1)

        writing = asyncio.create_task(write())
        await other.generations.create("photos", soon())
        await other.until_scanned()
        assert await asked(other, PROMOTE) == "photos@2"
        assert await asked(other, ROLL_BACK) == "photos"
        assert await asked(one, PROMOTE) == "photos@2"
        is_over.set()
        await writing
        assert await one.stored("photos@2") == one.texts
        assert await one.ask(ROLL_BACK) == "photos"
        assert await other.stored("photos") == one.texts
        assert await other.ask(DROP, "photos@2") == "photos"
        assert await one.stored("photos@2") == {}
