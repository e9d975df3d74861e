"""Runs rerank_svc: `python -m rerank_svc`."""

import asyncio
import sys
from pathlib import Path

import grpc

from rerank_svc.reranker import Reranker
from rerank_svc.servicer import RerankServicer
from rerank_svc.settings import RerankSettings
from rerank_svc.shard_items import open_shard_items
from tandem.chassis.guard import load_guard_or_exit
from tandem.chassis.server import serve
from tandem.chassis.settings import load_or_exit
from tandem.chassis.started_threads import started_threads
from tandem.chassis.tls import load_identity_or_exit, triton_credentials
from tandem.chassis.tracing import trace_headers
from tandem.item_store.refused import StoreRefused
from tandem.model_io.followed_version import FollowedVersion
from tandem.model_io.manifest import read_manifest
from tandem.model_io.model_servicer import MODEL_SERVICE_NAME, ModelServicer
from tandem.model_io.served_metrics import note_model, note_shard
from tandem.model_io.served_model import ServedModel
from tandem.model_io.triton_client import TritonClient
from tandem.v1 import rerank_service_pb2
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tandem.v1.rerank_service_pb2_grpc import add_RerankServiceServicer_to_server


async def main(settings: RerankSettings) -> None:
    """Serves until SIGTERM or SIGINT."""
    identity = load_identity_or_exit()
    repository = Path(settings.model_repository)
    manifest = read_manifest(repository)
    version = FollowedVersion(repository, manifest)
    note_shard("rerank", settings.shard_number, settings.shard_count)
    triton = TritonClient(
        settings.triton_address,
        credentials=triton_credentials(identity, is_asked_for=settings.triton_tls),
        headers=trace_headers,
    )
    with started_threads(settings.thread_count, "read") as threads:
        reranker = Reranker(
            ServedModel(triton, manifest),
            lambda: open_shard_items(settings),
            threads,
            cache_bytes=settings.score_cache_bytes,
            token_cache_bytes=settings.token_cache_bytes,
            calibration_of=version.calibration,
            serving_version=version.number,
        )
        servicer = RerankServicer(reranker, settings.default_timeout_seconds)

        def register(server: grpc.aio.Server) -> None:
            add_RerankServiceServicer_to_server(servicer, server)
            add_ModelServiceServicer_to_server(ModelServicer(version.describe), server)

        async def check() -> None:
            version.look()
            note_model("rerank", version.describe())
            await reranker.check()

        async def close() -> None:
            await triton.close()
            # A cancelled call may still be reading in its thread, and the store must outlive it.
            await asyncio.to_thread(threads.shutdown)
            reranker.close()

        await serve(
            settings,
            name="rerank",
            register=register,
            service_names=[
                rerank_service_pb2.DESCRIPTOR.services_by_name["RerankService"].full_name,
                MODEL_SERVICE_NAME,
            ],
            warm=check,
            ready=check,
            close=close,
            identity=identity,
            guard=load_guard_or_exit(identity),
        )


if __name__ == "__main__":
    try:
        asyncio.run(main(load_or_exit(RerankSettings, "RERANK_")))
    except StoreRefused as error:
        sys.exit(f"rerank_svc: {error}")
