"""Puts index_svc together."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from index_svc.admin_servicer import IndexAdminServicer
from index_svc.corrupt_shard import CorruptShard
from index_svc.move_servicer import MoveServicer
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from index_svc.shard_backup import ShardBackups
from tandem.chassis.health.health import Probe
from tandem.chassis.serve.service import Service
from tandem.chassis.settings import SettingsError
from tandem.installation import PackageMissing
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.verdict import damage_of
from tandem.local.shard.local_shard import LocalShard
from tandem.local.shard.retrieval.faiss_index import visible_gpu_count
from tandem.local.shard.retrieval.faiss_threads import faiss_threads, keep_faiss_in_this_thread
from tandem.local.shard.shard import StoredShard
from tandem.platform.files.object_store import object_folder
from tandem.remote.chosen_engine import engine_shard
from tandem.remote.engine_shard import EngineShard
from tandem.stages.shard import Shard
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import (
    IndexAdminServiceServicer,
    add_IndexAdminServiceServicer_to_server,
)
from tandem.v1.index_service_pb2_grpc import add_IndexServiceServicer_to_server


@dataclass(frozen=True, slots=True)
class OpenedShard:
    """A shard's service; without shard and store if the store is damaged or an outside engine."""

    service: Service
    shard: StoredShard | None = None
    store: ItemStore | None = None


def index_service(settings: IndexSettings) -> OpenedShard:
    """Opens the store, or names the engine that has the items.

    Raises StoreRefused, and SettingsError for a GPU or an engine's package that is missing.
    """
    if (engine := engine_shard(settings)) is not None:
        return OpenedShard(_engine_service(settings, engine))
    # Searches already run in parallel; FAISS's own threads would only contend with them.
    keep_faiss_in_this_thread()
    path = Path(settings.store_path)
    _check_backup_url(settings.backup_url)
    _check_gpu(settings.gpu_number)
    if damage := damage_of(path, settings.checked_at_start_bytes):
        corrupt = CorruptShard(settings, damage)
        stage, admin = cast(Shard, corrupt), IndexAdminServiceServicer()
        return OpenedShard(
            _served(settings, stage, admin, corrupt.warm, corrupt.warm, corrupt.close)
        )
    store = ItemStore.open(
        path,
        settings.shard_number,
        settings.shard_count,
        map_bytes=settings.store_map_bytes,
        allow_any_file_system=settings.allow_any_file_system,
    )
    shard = StoredShard(store, path, settings)
    return OpenedShard(_service(settings, shard), shard, store)


def _check_backup_url(url: str) -> None:
    try:
        if url:
            object_folder(url, is_new=True)
    except (OSError, PackageMissing) as error:
        raise SettingsError(f"INDEX_BACKUP_URL: {error}") from error


def _check_gpu(number: int) -> None:
    if number >= 0 and number >= (count := visible_gpu_count()):
        raise SettingsError(
            f"INDEX_GPU_NUMBER is {number}, FAISS sees {count} GPUs; install faiss-gpu, or set -1"
        )


def _service(settings: IndexSettings, shard: StoredShard) -> Service:
    threads = faiss_threads(settings.thread_count, "shard")
    stage = LocalShard(shard, threads)
    backups = ShardBackups(Path(settings.store_path), settings.backup_url, settings.shard_number)

    async def warm() -> None:
        # In the threads that close() waits for: the store must outlive a load in progress.
        await asyncio.get_running_loop().run_in_executor(threads, shard.load)

    async def ready() -> None:
        shard.check()

    async def close() -> None:
        await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(shard.close)

    admin = IndexAdminServicer(shard, backups, stage, settings.shard_map_version)
    return _served(settings, stage, admin, warm, ready, close)


def _engine_service(settings: IndexSettings, shard: EngineShard) -> Service:
    """Returns the service over an engine, which has no state: any number of it serves one shard.

    Of IndexAdminService it has what a move needs, because the engine builds and tunes its indexes
    itself.
    """
    admin = MoveServicer(shard, settings.shard_map_version)
    return _served(settings, shard, admin, shard.open, shard.check, shard.close)


def _served(
    settings: IndexSettings,
    stage: Shard,
    admin: IndexAdminServiceServicer,
    warm: Probe,
    ready: Probe,
    close: Probe,
) -> Service:
    servicer = IndexServicer(stage, shard_map_version=settings.shard_map_version)

    def register(server: grpc.aio.Server) -> None:
        add_IndexServiceServicer_to_server(servicer, server)
        add_IndexAdminServiceServicer_to_server(admin, server)

    return Service(
        name="index",
        register=register,
        service_names=[
            pb.DESCRIPTOR.services_by_name["IndexService"].full_name,
            admin_pb.DESCRIPTOR.services_by_name["IndexAdminService"].full_name,
        ],
        warm=warm,
        ready=ready,
        close=close,
        stage=stage,
    )
