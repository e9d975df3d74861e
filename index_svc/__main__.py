"""Starts one shard: `python -m index_svc`, set up by INDEX_... variables (see `--settings`)."""

import asyncio
import sys
from pathlib import Path

import grpc

import tandem.chassis.plain_structlog  # noqa: F401
from index_svc.admin_servicer import IndexAdminServicer
from index_svc.corrupt_shard import damage_of, serve_corrupt
from index_svc.retrieval.faiss_index import visible_gpu_count
from index_svc.retrieval.faiss_threads import faiss_threads, keep_faiss_in_this_thread
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from index_svc.shard import Shard
from index_svc.shard_settings import shard_settings
from tandem.chassis.guard import load_guard_or_exit
from tandem.chassis.server import serve
from tandem.chassis.settings import load_or_exit
from tandem.chassis.tls import load_identity_or_exit
from tandem.item_store.item_store import ItemStore
from tandem.item_store.refused import StoreRefused
from tandem.model_io.served_metrics import note_shard
from tandem.private_files import keep_files_private
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import add_IndexAdminServiceServicer_to_server
from tandem.v1.index_service_pb2_grpc import add_IndexServiceServicer_to_server


async def main() -> None:
    """Serves until it is stopped."""
    keep_files_private()
    settings = load_or_exit(IndexSettings, "INDEX_")
    identity = load_identity_or_exit()
    guard = load_guard_or_exit(identity)
    # Searches already run in parallel; FAISS's own threads would only contend with them.
    keep_faiss_in_this_thread()
    path = Path(settings.store_path)
    note_shard("index", settings.shard_number, settings.shard_count)
    try:
        if damage := damage_of(path, settings.checked_at_start_bytes):
            await serve_corrupt(settings, damage, identity, guard)
            return
        store = ItemStore.open(
            path,
            settings.shard_number,
            settings.shard_count,
            map_bytes=settings.store_map_bytes,
            allow_any_file_system=settings.allow_any_file_system,
        )
    except StoreRefused as error:
        sys.exit(f"index_svc: {error}")
    gpu_number = settings.gpu_number if settings.gpu_number >= 0 else None
    if gpu_number is not None and gpu_number >= visible_gpu_count():
        sys.exit(
            f"index_svc: INDEX_GPU_NUMBER is {gpu_number}, FAISS sees {visible_gpu_count()} GPUs; "
            "install faiss-gpu, or set -1"
        )
    try:
        shard = Shard(store, path, shard_settings(settings, gpu_number))
    except StoreRefused as error:
        sys.exit(f"index_svc: {error}")
    threads = faiss_threads(settings.thread_count, "shard")

    def register(server: grpc.aio.Server) -> None:
        add_IndexServiceServicer_to_server(
            IndexServicer(shard, threads, shard_map_version=settings.shard_map_version), server
        )
        add_IndexAdminServiceServicer_to_server(IndexAdminServicer(shard), server)

    async def warm() -> None:
        # In the threads that close() waits for: the store must outlive a load in progress.
        await asyncio.get_running_loop().run_in_executor(threads, shard.load)

    async def ready() -> None:
        shard.check()

    async def close() -> None:
        await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(shard.close)

    await serve(
        settings,
        name="index",
        register=register,
        service_names=[
            pb.DESCRIPTOR.services_by_name["IndexService"].full_name,
            admin_pb.DESCRIPTOR.services_by_name["IndexAdminService"].full_name,
        ],
        warm=warm,
        ready=ready,
        close=close,
        identity=identity,
        guard=guard,
    )


if __name__ == "__main__":
    asyncio.run(main())
