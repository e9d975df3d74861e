"""Real index services to move between, written to as an orchestrator writes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tandem.client.access import Access
from tandem.contract.content import TextContent
from tandem.contract.deadline import Deadline
from tandem.remote.move.mover import Mover
from tandem.remote.move.shard_link import ShardLink
from tandem.remote.shard import RemoteShard
from tandem.search.calls.guarded import GuardedShard
from tandem.search.shard_map import ShardMap
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord, ItemsQuery
from tests.support.faults.supervisor import Ending, Supervised
from tests.support.index_svc.shard_process import ShardProcess
from tests.support.item_store.made_items import FINGERPRINT, text_item

Contents = dict[str, dict[str, tuple[str, bytes]]]
"""Text and embedding of each item, by index and id."""


@dataclass
class Shards:
    """Running shards of one map."""

    processes: Sequence[ShardProcess]
    links: list[ShardLink]
    writers: Sequence[GuardedShard]
    shard_map: ShardMap
    in_flight: str = ""
    """What write_until stores, and no answer has come yet."""

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{each.port}" for each in self.processes]

    async def store(
        self, items: Sequence[ItemRecord], index_id: str = "scenes", fingerprint: str = FINGERPRINT
    ) -> None:
        """Stores items where they belong; a fence holds them."""
        by_id = {each.item_id: each for each in items}
        for number, ids in self.shard_map.group(index_id, by_id).items():
            write = Upsert(index_id, fingerprint, [by_id[each] for each in ids])
            await self.writers[number].write(write, Deadline.after(60))

    async def delete(self, item_ids: Sequence[str], index_id: str = "scenes") -> None:
        """Deletes items where they belong."""
        for number, ids in self.shard_map.group(index_id, item_ids).items():
            await self.writers[number].write(Delete(index_id, ids), Deadline.after(60))

    async def drop(self, index_id: str) -> None:
        """Deletes an index on all shards."""
        for link in self.links:
            await link.drop(index_id)

    async def contents(self) -> Contents:
        """Returns everything that is stored; an index without items as well."""
        found: Contents = {}
        for number, link in enumerate(self.links):
            for index_id in await link.summaries():
                of_index = found.setdefault(index_id, {})
                after = ""
                while ids := await link.again(link.shard.list_item_ids, index_id, after, 200):
                    after = ids[-1]
                    query = ItemsQuery(index_id, ids, encodings_included=True)
                    fetched = await link.again(link.shard.get, query)
                    assert fetched.read_count == len(ids)
                    for item_id, item in fetched.items.items():
                        assert self.shard_map.owner(index_id, item_id) == number
                        assert item.encoding is not None
                        assert isinstance(item.content, TextContent)
                        embedding = item.encoding.embedding.tobytes()
                        of_index[item_id] = (item.content.text, embedding)
        return found


@asynccontextmanager
async def shards(
    folder: Path,
    count: int,
    settings: Mapping[str, object] | None = None,
    module: str = "index_svc",
) -> AsyncIterator[Shards]:
    """Runs the shards of one map until the end."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    async with AsyncExitStack() as opened:
        processes = []
        for number in range(count):
            path = folder / f"shard-{number}"
            processes.append(ShardProcess(path, number, count, module=module, settings=settings))
            opened.callback(processes[-1].kill)
        links, writers = [], []
        for number, process in enumerate(processes):
            channel = await opened.enter_async_context(await process.ready())
            writers.append(GuardedShard(RemoteShard(channel, number, shard_map_version=0), number))
            link = ShardLink(f"127.0.0.1:{process.port}", number, Access())
            opened.push_async_callback(link.channel.close)
            links.append(link)
        yield Shards(processes, links, writers, ShardMap(count))


def mover(sources: Shards, targets: Shards, path: Path, shown: list[str] | None = None) -> Mover:
    """Returns a mover in this process."""
    stages = [] if shown is None else shown
    return Mover(sources.links, targets.links, path, lambda stage, *_: stages.append(stage))


async def write_until(done: asyncio.Event, sources: Shards) -> None:
    """Stores, replaces and deletes about fifty times a second, each write after the one before."""
    number = 0
    while not done.is_set():
        sources.in_flight = f"live-{number % 40:02}"
        await sources.store([text_item(sources.in_flight, number)])
        sources.in_flight = ""
        if number % 5 == 0:
            await sources.delete([f"item-{number:04}", f"live-{(number + 20) % 40:02}"])
        number += 1
        await asyncio.sleep(0.02)


class MoveProcess(Supervised):
    """Runs `tandem move`."""

    def __init__(
        self, sources: Shards, targets: Shards, folder: Path, rerank_address: str = "127.0.0.1:1"
    ) -> None:
        """Writes the orchestrators' file as "map.json" into the folder, which has its log too."""
        arguments = [sys.executable, "-m", "tandem.cli", "move"]
        for name, addresses in (
            ("--from", sources.addresses),
            ("--to", targets.addresses),
            ("--rerank-address", [rerank_address] * len(targets.processes)),
            ("--shard-map-file", [str(folder / "map.json")]),
            ("--progress-file", [str(folder / "progress.json")]),
        ):
            arguments += [part for each in addresses for part in (name, each)]
        super().__init__(arguments, folder / "move.log", {})

    async def end(self, seconds: float = 120.0) -> Ending:
        """Waits for the end; raises TimeoutError with the log."""
        end_time = time.monotonic() + seconds
        while (ending := self.ending()) is None:
            if time.monotonic() > end_time:
                raise TimeoutError(self.log())
            await asyncio.sleep(0.02)
        return ending
