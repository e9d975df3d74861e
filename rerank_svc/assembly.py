"""Puts rerank_svc together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

import tandem.chassis.telemetry.plain_structlog  # noqa: F401
from rerank_svc.servicer import RerankServicer
from rerank_svc.settings import RerankSettings
from rerank_svc.shard_items import open_shard_items
from tandem.chassis.calls.credentials import triton_identity
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.process.threads import started_threads
from tandem.chassis.serve.service import Service
from tandem.chassis.settings import SettingsError
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.model_metrics import note_model
from tandem.chassis.telemetry.tracing import trace_headers
from tandem.chassis.tls import Identity
from tandem.contract.model_description import ModelDescription
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.local_reranker import LocalReranker
from tandem.local.reranking.reranker import ModelReranker
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_neighbour_model import ServedNeighbourModel
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image import heif_reader
from tandem.model_io.repository.followed_version import FollowedVersion
from tandem.model_io.repository.manifest import read_manifest
from tandem.model_io.repository.neighbour_manifest import neighbour_manifest_of
from tandem.remote.chosen_engine import engine_candidates
from tandem.remote.model import MODEL_SERVICE_NAME, ModelServicer
from tandem.stages.candidate_store import CandidateStore
from tandem.triton.client import TritonClient
from tandem.v1 import rerank_service_pb2
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tandem.v1.rerank_service_pb2_grpc import add_RerankServiceServicer_to_server

if TYPE_CHECKING:
    from tandem.local.reranking.remote.remote_reranker import HttpReranker

log = get_logger()


@asynccontextmanager
async def connected_model(
    settings: RerankSettings, identity: Identity | None
) -> AsyncIterator[ServedModel]:
    """Yields the model over one connection to Triton."""
    triton = TritonClient(
        settings.triton_address,
        identity=triton_identity(identity, is_asked_for=settings.triton_tls),
        headers=trace_headers,
    )
    try:
        yield ServedModel(triton, read_manifest(Path(settings.model_repository)))
    finally:
        await triton.close()


@asynccontextmanager
async def rerank_service(
    settings: RerankSettings,
    identity: Identity | None,
    shared_store: Callable[[], ItemStore] | None = None,
    shared_model: ServedModel | None = None,
) -> AsyncIterator[Service]:
    """Yields the service, whose `close` must be awaited before this is left.

    In index_svc's process `shared_store` returns its store, which LMDB opens once in a process; the
    service then does not close it. Services with one `shared_model` score a query's pairs together.
    """
    repository = Path(settings.model_repository)
    manifest = read_manifest(repository)
    version = FollowedVersion(repository, manifest)
    with started_threads(settings.thread_count, "read") as threads:
        turns = CallerTurns(threads, settings.thread_count)
        candidates = _candidates(settings, manifest.fingerprint, turns, shared_store)
        opened: AbstractAsyncContextManager[ModelReranker | HttpReranker] = (
            _remote(settings, candidates, turns)
            if settings.remote_url
            else _in_triton(settings, identity, shared_model, version, turns, candidates)
        )
        async with AsyncExitStack() as open_until_left:
            reranker = await open_until_left.enter_async_context(opened)
            neighbour_model = await open_until_left.enter_async_context(
                _neighbour_model(settings, identity)
            )

            def describe() -> ModelDescription:
                description = version.describe()
                if neighbour_model is not None:
                    description = replace(
                        description, neighbour_model=neighbour_model.manifest.describe()
                    )
                return _with_remote(description, settings) if settings.remote_url else description

            stage = LocalReranker(reranker, describe, neighbour_model)
            servicer = RerankServicer(stage, settings.default_timeout_seconds)

            def register(server: grpc.aio.Server) -> None:
                add_RerankServiceServicer_to_server(servicer, server)
                add_ModelServiceServicer_to_server(ModelServicer(describe), server)

            async def check() -> None:
                version.look()
                note_model("rerank", version.describe())
                await reranker.check()

            async def close() -> None:
                await open_until_left.aclose()
                # A cancelled call may still be reading in its thread, which the store must outlive.
                await asyncio.to_thread(threads.shutdown)
                if shared_store is None:
                    await candidates.close()

            yield Service(
                name="rerank",
                register=register,
                service_names=[
                    rerank_service_pb2.DESCRIPTOR.services_by_name["RerankService"].full_name,
                    MODEL_SERVICE_NAME,
                ],
                warm=check,
                ready=check,
                close=close,
                stage=stage,
            )


def _candidates(
    settings: RerankSettings,
    fingerprint: str,
    turns: CallerTurns,
    shared_store: Callable[[], ItemStore] | None,
) -> CandidateStore:
    if (candidates := engine_candidates(settings, fingerprint)) is not None:
        return candidates
    return CandidateReader(shared_store or (lambda: open_shard_items(settings)), turns, fingerprint)


@asynccontextmanager
async def _in_triton(
    settings: RerankSettings,
    identity: Identity | None,
    shared: ServedModel | None,
    version: FollowedVersion,
    turns: CallerTurns,
    candidates: CandidateStore,
) -> AsyncIterator[ModelReranker]:
    async with nullcontext(shared) if shared else connected_model(settings, identity) as model:
        yield ModelReranker(
            model,
            candidates,
            turns,
            cache_bytes=settings.score_cache_bytes,
            token_cache_bytes=settings.token_cache_bytes,
            calibration_of=version.calibration,
            serving_version=version.number,
            heif=_heif(settings),
        )


@asynccontextmanager
async def _neighbour_model(
    settings: RerankSettings, identity: Identity | None
) -> AsyncIterator[ServedNeighbourModel | None]:
    """Yields a scorer of graphs if the repository has a neighbour model and Triton is set, or None.

    It has a connection of its own, so that its faults are not taken for the cross-encoder's. An
    invalid description stops nothing else: pairs are scored without it.
    """
    try:
        neighbours = neighbour_manifest_of(Path(settings.model_repository))
    except ValueError as error:
        log.error("the neighbour model is not served", why=str(error))
        neighbours = None
    if neighbours is None or not settings.triton_address:
        yield None
        return
    triton = TritonClient(
        settings.triton_address,
        identity=triton_identity(identity, is_asked_for=settings.triton_tls),
        headers=trace_headers,
    )
    try:
        yield ServedNeighbourModel(triton, neighbours)
    finally:
        await triton.close()


@asynccontextmanager
async def _remote(
    settings: RerankSettings, candidates: CandidateStore, turns: CallerTurns
) -> "AsyncIterator[HttpReranker]":
    # Here, because the HTTP client is an extra that only a remote cross-encoder needs.
    try:
        from rerank_svc.remote_start import remote_reranker
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"RERANK_REMOTE_URL needs {error.name}; pip install 'tandem-search[remote]'"
        ) from error

    async with remote_reranker(settings, candidates, turns, _heif(settings)) as reranker:
        yield reranker


def _heif(settings: RerankSettings) -> HeifReader | None:
    try:
        return heif_reader() if settings.heif_enabled else None
    except ValueError as error:
        raise SettingsError(f"RERANK_HEIF_ENABLED: {error}") from error


def _with_remote(description: ModelDescription, settings: RerankSettings) -> ModelDescription:
    """Returns the bi-encoder's description with the remote cross-encoder's probabilities.

    No rule for adaptive depth was measured for it.
    """
    return replace(
        description,
        probability_calibration=settings.remote_calibration,
        adaptive_depth_rule=None,
    )
