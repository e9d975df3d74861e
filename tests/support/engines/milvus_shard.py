"""Opens a shard in a real Milvus, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, cast

from index_svc.settings import IndexSettings
from tandem.contract.deadline import Deadline
from tandem.stages.item_write import Committed, Delete, ShardWrite, Upsert
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import Shard
from tandem.stages.shard_answer import ShardAnswer
from tests.support.engines.milvus_server import MilvusServer, shared_milvus

# Of what a search without a token may miss.
_LAG_SECONDS = 1.0


def milvus_settings(
    folder: Path, options: str = "tokens=on", server: MilvusServer | None = None
) -> IndexSettings:
    """Returns the settings of index_svc; the namespace and the records are the folder's own."""
    address = (server or shared_milvus()).address
    return IndexSettings(
        shard_number=0,
        shard_count=1,
        engine="milvus",
        engine_url=f"http://{address}?objects=file://{folder}&{options}",
        engine_namespace="n" + blake2b(str(folder).encode(), digest_size=8).hexdigest(),
    )


@asynccontextmanager
async def milvus_shard(folder: Path) -> AsyncIterator[Shard]:
    """Yields a shard, each of whose searches has the token of the last write."""
    settings = milvus_settings(folder, "tokens=on&fields=colour:text")
    # Here, because the client is an extra, which the settings have found.
    from tandem.remote.milvus.shard import MilvusShard

    shard = MilvusShard(settings)
    await shard.open()
    try:
        yield cast("Shard", _WithTokens(shard, folder))
    finally:
        await shard.close()


def damage_object(folder: Path, item_id: str) -> None:
    """Changes the last byte of an item's record."""
    [record] = [
        path
        for path in folder.rglob("*")
        if path.is_file() and f"{item_id} of seed".encode() in path.read_bytes()
    ]
    record.write_bytes(record.read_bytes()[:-1] + b"?")


class _WithTokens:
    """Has each search see what this shard wrote before it, as a caller with its token does."""

    _sequences: ClassVar[dict[Path, int]] = {}

    def __init__(self, shard: Shard, folder: Path) -> None:
        self._shard = shard
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        committed = await self._shard.write(write, deadline)
        if isinstance(write, Upsert | Delete):
            self._sequences[self._folder] = committed.sequence
        return committed

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        minimum = query.minimum_sequence or self._sequences.get(self._folder, 0)
        return await self._shard.search(replace(query, minimum_sequence=minimum), deadline)

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        await asyncio.sleep(_LAG_SECONDS)
        return await self._shard.find_neighbours(query, deadline)
