"""The kinds of shards over which the contract suite runs; an engine is one more row of SHARDS.

The rows of outside engines are there where `make test-engines` has installed them.
"""

import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import grpc

from index_svc.assembly import index_service
from index_svc.move_servicer import MoveServicer
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.local_shard import LocalShard
from tandem.local.shard.settings import ShardSettings
from tandem.local.shard.shard import StoredShard
from tandem.remote.chosen_engine import engine_shard
from tandem.remote.shard import RemoteShard
from tandem.stages.shard import FollowedShard, Shard
from tandem.v1.index_admin_service_pb2_grpc import add_IndexAdminServiceServicer_to_server
from tandem.v1.index_service_pb2_grpc import add_IndexServiceServicer_to_server
from tests.support.chassis.served import served
from tests.support.engines.milvus_shard import damage_object, milvus_shard
from tests.support.engines.postgres import is_installed, shared_postgres
from tests.support.item_store.stored_values import overwrite, stored_value

INDEX = "scenes"


@asynccontextmanager
async def local_shard(folder: Path) -> AsyncIterator[FollowedShard]:
    """Yields a shard of this process."""
    store = ItemStore.open(folder, 0, 1, map_bytes=64 << 20)
    stored = StoredShard(store, folder, ShardSettings(keywords_enabled=True))
    stored.load()
    with ThreadPoolExecutor(2) as threads:
        try:
            yield LocalShard(stored, threads)
        finally:
            threads.shutdown()
            stored.close()


@asynccontextmanager
async def remote_shard(folder: Path) -> AsyncIterator[Shard]:
    """Yields the same behind a socket."""
    async with local_shard(folder) as shard:

        def register(server: grpc.aio.Server) -> None:
            add_IndexServiceServicer_to_server(IndexServicer(shard), server)
            add_IndexAdminServiceServicer_to_server(MoveServicer(shard, 1), server)

        async with served(register) as channel:
            yield RemoteShard(channel, 0)


@asynccontextmanager
async def pgvector_shard(folder: Path) -> AsyncIterator[Shard]:
    """Yields a shard in Postgres, whose schema is named after the folder."""
    settings = pgvector_settings(folder)
    shard = engine_shard(settings)
    assert shard is not None
    await shard.open()
    try:
        yield shard
    finally:
        await shard.close()


@asynccontextmanager
async def served_pgvector_shard(folder: Path) -> AsyncIterator[Shard]:
    """Yields the same behind index_svc's own service."""
    service = index_service(pgvector_settings(folder)).service
    await service.warm()
    try:
        async with served(service.register) as channel:
            yield RemoteShard(channel, 0)
    finally:
        await service.close()


def pgvector_settings(folder: Path) -> IndexSettings:
    """Returns the settings of index_svc over the session's server."""
    return IndexSettings(
        shard_number=0,
        shard_count=1,
        engine="pgvector",
        engine_url=shared_postgres().url(),
        engine_namespace=schema_of(folder),
    )


def schema_of(folder: Path) -> str:
    return hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()


def damage_record(folder: Path, item_id: str) -> None:
    """Changes the last byte of an item's record in LMDB."""
    key = item_key(INDEX, item_id)
    overwrite(folder, "items", key, stored_value(folder, "items", key)[:-1] + b"?")


def damage_row(folder: Path, item_id: str) -> None:
    """Changes the last byte of what an item's row has for reads."""
    schema = schema_of(folder)
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
    [table] = shared_postgres().execute(f"{tables} AND tablename LIKE 'items%'").split()
    shared_postgres().execute(
        f"UPDATE \"{schema}\".{table} SET head = substring(head FOR length(head) - 1) || '?' "
        f"WHERE id = '{item_id}'"
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """Describes a kind of shard."""

    open: Callable[[Path], AbstractAsyncContextManager[Shard]]
    """Yields the shard over a folder, or a part of an engine that is named after it."""
    damage: Callable[[Path, str], None] = damage_record
    finds_damaged: bool = False
    """Whether a search still finds an item whose record is damaged: it reads another part."""
    finds_words: bool = True
    counts_changes: bool = True
    """Whether a sequence is a number of changes, not a time."""
    is_shared: bool = False
    """Whether several services may serve one shard at once."""


SHARDS = {
    "here": Kind(local_shard),
    "behind a socket": Kind(remote_shard),
}
if is_installed():  # By `make test-engines`.
    SHARDS |= {
        name: Kind(opened, damage_row, finds_damaged=True, finds_words=False, is_shared=True)
        for name, opened in (
            ("pgvector", pgvector_shard),
            ("pgvector behind a socket", served_pgvector_shard),
        )
    }
if find_spec("milvus"):
    SHARDS |= {
        "milvus": Kind(
            milvus_shard,
            damage_object,
            finds_damaged=True,
            finds_words=False,
            counts_changes=False,
            is_shared=True,
        ),
    }
