"""Shards of this process over real stores, which a test may take away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tandem.errors import ServiceUnavailable
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.local_shard import LocalShard
from tandem.local.shard.shard import StoredShard
from tandem.stages.shard import Shard


class LeavingShard:
    """A shard that answers nothing while it is away."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._shard, name)

        async def call(*arguments: object) -> object:
            if self.is_away:
                raise ServiceUnavailable(service="index", why="a test took it away")
            return await method(*arguments)

        return call


async def until(is_so: Callable[[], bool]) -> None:
    """Returns once it is so; the test's own time limit ends a longer wait."""
    while not is_so():  # noqa: ASYNC110 (what is awaited knows no event)
        await asyncio.sleep(0.01)


@asynccontextmanager
async def local_shards(folder: Path, count: int = 2) -> AsyncIterator[Sequence[Any]]:
    """Yields so many shards."""
    async with AsyncExitStack() as opened:
        threads = opened.enter_context(ThreadPoolExecutor(2))
        shards = []
        for number in range(count):
            path = folder / f"shard-{number}"
            store = ItemStore.open(path, number, count, map_bytes=64 << 20)
            opened.callback(store.close)
            stored = StoredShard(store, path)
            opened.callback(stored.close)
            stored.load()
            shards.append(LeavingShard(LocalShard(stored, threads)))
        yield shards
