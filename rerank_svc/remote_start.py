"""Sets up a remote cross-encoder from the RERANK_REMOTE_… settings."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rerank_svc.settings import RerankSettings
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.settings import SettingsError
from tandem.local.reranking.remote.canary import RemoteCanary
from tandem.local.reranking.remote.endpoint import RemoteEndpoint, RemoteScores, RemoteShape
from tandem.local.reranking.remote.http_client import RemoteHttpClient
from tandem.local.reranking.remote.remote_reranker import HttpReranker
from tandem.local.reranking.remote.remote_scorer import RemoteScorer
from tandem.local.reranking.remote.stored_documents import StoredDocuments
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.stages.candidate_store import CandidateStore


@asynccontextmanager
async def remote_reranker(
    settings: RerankSettings,
    candidates: CandidateStore,
    turns: CallerTurns,
    heif: HeifReader | None = None,
) -> AsyncIterator[HttpReranker]:
    """Yields a reranker of those candidates; raises SettingsError."""
    endpoint = _endpoint(settings)
    client = RemoteHttpClient(endpoint, key=_key(settings), trust=_trust(settings))
    try:
        scorer = RemoteScorer(client, endpoint)
        documents = StoredDocuments(
            candidates,
            turns,
            endpoint.picture_side,
            cache_bytes=settings.token_cache_bytes,
            heif=heif,
        )
        yield HttpReranker(
            scorer,
            endpoint,
            candidates,
            documents,
            canary=RemoteCanary(scorer, endpoint, tolerance=settings.remote_tolerance_share),
            cache_bytes=settings.score_cache_bytes,
            calibration=settings.remote_calibration,
        )
    finally:
        await client.close()


def _endpoint(settings: RerankSettings) -> RemoteEndpoint:
    try:
        return RemoteEndpoint(
            url=settings.remote_url,
            model=settings.remote_model,
            shape=RemoteShape(settings.remote_shape),
            scores=RemoteScores(settings.remote_scores),
            takes_picture_queries=settings.remote_picture_queries,
            batch_size=settings.remote_batch_count,
            max_request_count=settings.remote_inflight_count,
            request_seconds=settings.remote_request_seconds,
            connect_seconds=settings.remote_connect_seconds,
            picture_side=settings.remote_picture_pixels,
        )
    except ValueError as error:
        raise SettingsError(f"RERANK_REMOTE_…: {error}") from error


def _key(settings: RerankSettings) -> str:
    if not settings.remote_key_file:
        return ""
    try:
        key = Path(settings.remote_key_file).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"RERANK_REMOTE_KEY_FILE cannot be read: {error}") from error
    if not key or not key.isprintable() or " " in key:
        raise SettingsError(
            f"RERANK_REMOTE_KEY_FILE: {settings.remote_key_file} has no key; write it on one line"
        )
    return key


def _trust(settings: RerankSettings) -> ssl.SSLContext | None:
    if not settings.remote_authority_file:
        return None
    try:
        return ssl.create_default_context(cafile=settings.remote_authority_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"RERANK_REMOTE_AUTHORITY_FILE cannot be read: {error}") from error
