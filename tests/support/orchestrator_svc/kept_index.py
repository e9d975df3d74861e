"""One orchestrator's part in generations, over shards of this process, and a caller of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tandem.contract.deadline import Deadline
from tandem.errors import IndexNotFound, WriterRefused
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.indexes.generations import Generations
from tandem.search.indexes.keeper import Keeper
from tandem.search.shard_map import ShardMap
from tandem.stages.aliases import AliasRecord
from tandem.stages.item_write import Delete, Upsert
from tests.support.item_store.followed_index import NumberEncoder

FIRST, SECOND = NumberEncoder("model-a", 4), NumberEncoder("model-b", 8)


class Orchestrating:
    """One orchestrator's part in generations, and a caller that writes through it."""

    def __init__(
        self,
        shards: Sequence[Any],
        texts: dict[str, str],
        models: Sequence[NumberEncoder] = (FIRST, SECOND),
    ) -> None:
        self.shards, self.texts = shards, texts
        self.book = AliasBook(shards)
        self.keeper = Keeper(self.book, models, shards, 1.0, 2)
        self.generations = Generations(self.book, models, shards)
        self._map = ShardMap(len(shards))
        self.longest_seconds = 0.0

    async def begin(self) -> None:
        await self.book.begin(soon())
        self.keeper.begin()

    async def end(self) -> None:
        await self.keeper.close()
        await self.book.close()

    async def write(self, item_id: str, text: str | None) -> None:
        """Stores or deletes, under the generation that serves, as an ingest does."""
        shard = self.shards[self._map.owner("photos", item_id)]
        began_time = asyncio.get_running_loop().time()
        while True:
            serving = self.book.record("photos").serving
            known = self.book.record("photos").fingerprint_of(serving)
            model = SECOND if known == SECOND.fingerprint else FIRST
            write: Upsert | Delete = Delete(serving, [item_id])
            if text is not None:
                write = Upsert(serving, model.fingerprint, [model.item(item_id, text)])
            try:
                with suppress(IndexNotFound):  # a delete before the first item
                    await shard.write(write, soon())
                break
            except WriterRefused:
                await asyncio.sleep(0.02)
                await self.book.refresh(soon())
        seconds = asyncio.get_running_loop().time() - began_time
        self.longest_seconds = max(self.longest_seconds, seconds)
        self.texts.pop(item_id, None)
        if text is not None:
            self.texts[item_id] = text

    async def write_at_random(
        self, chance: random.Random, count: int, is_over: asyncio.Event | None = None
    ) -> None:
        for _ in range(count):
            if is_over and is_over.is_set():
                return
            item_id = f"item-{chance.randrange(200)}"
            number = chance.randrange(10**6)
            await self.write(item_id, f"text {number}" if chance.random() < 0.7 else None)

    async def ask(self, kind: str, index_id: str = "photos") -> str:
        return await self.generations.ask(kind, index_id, "why", "me", Deadline.after(60))

    async def record(self) -> AliasRecord:
        await self.book.refresh(soon())
        return self.book.record("photos")

    async def until_scanned(self) -> None:
        while True:
            record = await self.record()
            statuses = await self.generations.statuses(record, soon())
            progress = [each for status in statuses for each in status.progress]
            if len(progress) == len(self.shards) and all(each.is_scanned for each in progress):
                return
            await asyncio.sleep(0.05)

    async def stored(self, index_id: str) -> dict[str, str]:
        texts: dict[str, str] = {}
        for shard in self.shards:
            store = shard._shard._shard._store
            with suppress(IndexNotFound):
                ids = store.item_ids(index_id, 10_000)
                texts |= {
                    each.item_id: each.content.text for each in store.read_items(index_id, ids)
                }
        return texts


def soon() -> Deadline:
    return Deadline.after(30.0)
