"""Starts one shard: `python -m index_svc`, told by INDEX_... variables; `--settings` lists them."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss

from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from index_svc.shard import Shard
from tandem.chassis.server import serve
from tandem.chassis.settings import load_or_exit
from tandem.corpus.item_store import ItemStore
from tandem.corpus.store_files import StoreRefused
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import add_IndexServiceServicer_to_server


async def main() -> None:
    """Serves until told to stop."""
    settings = load_or_exit(IndexSettings, "INDEX_")
    # Searches run side by side already; FAISS's own threads on top would only contend.
    faiss.omp_set_num_threads(1)
    try:
        store = ItemStore.open(
            Path(settings.store_path),
            settings.shard_number,
            settings.shard_count,
            map_bytes=settings.store_map_bytes,
        )
    except StoreRefused as error:
        sys.exit(f"index_svc: {error}")
    shard = Shard(store, commit_wait_seconds=settings.commit_wait_seconds)
    threads = ThreadPoolExecutor(settings.thread_count, thread_name_prefix="shard")

    async def warm() -> None:
        # In the threads that close() waits for: the store must outlive a load that is under way.
        await asyncio.get_running_loop().run_in_executor(threads, shard.load)

    async def ready() -> None:
        shard.check()

    async def close() -> None:
        await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(shard.close)

    await serve(
        name="index",
        address=settings.address,
        metrics_port=settings.metrics_port,
        register=lambda server: add_IndexServiceServicer_to_server(
            IndexServicer(shard, threads, shard_map_version=settings.shard_map_version), server
        ),
        service_names=[pb.DESCRIPTOR.services_by_name["IndexService"].full_name],
        warm=warm,
        ready=ready,
        close=close,
        drain_notice_seconds=settings.drain_notice_seconds,
        grace_seconds=settings.grace_seconds,
        max_inflight_count=settings.max_inflight_count,
    )


if __name__ == "__main__":
    asyncio.run(main())
