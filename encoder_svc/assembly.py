"""Puts encoder_svc together."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from encoder_svc.servicer import EncoderServicer
from encoder_svc.settings import EncoderSettings
from tandem.chassis.calls.credentials import triton_identity
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.process.threads import started_threads
from tandem.chassis.serve.service import Service
from tandem.chassis.telemetry.model_metrics import note_model
from tandem.chassis.telemetry.tracing import trace_headers
from tandem.chassis.tls import Identity
from tandem.local.encoding.encoder import ModelEncoder
from tandem.local.encoding.local_encoder import LocalEncoder
from tandem.local.encoding.query_encodings import QueryEncodings
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_texts import ServedTexts
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image import heif_reader
from tandem.model_io.repository.followed_version import FollowedVersion
from tandem.model_io.repository.manifest import read_manifest
from tandem.remote.model import MODEL_SERVICE_NAME, ModelServicer
from tandem.triton.client import TritonClient
from tandem.v1 import encoder_service_pb2
from tandem.v1.encoder_service_pb2_grpc import add_EncoderServiceServicer_to_server
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server


@asynccontextmanager
async def encoder_service(
    settings: EncoderSettings, identity: Identity | None
) -> AsyncIterator[Service]:
    """Yields the service, whose `close` must be awaited before this is left."""
    repository = Path(settings.model_repository)
    manifest = read_manifest(repository)
    manifest.verify_tokenizers(repository)
    version = FollowedVersion(repository, manifest)
    texts = ServedTexts.open(repository, manifest)
    heif = _heif_or_exit() if settings.heif_enabled else None
    triton = TritonClient(
        settings.triton_address,
        identity=triton_identity(identity, is_asked_for=settings.triton_tls),
        headers=trace_headers,
    )
    with started_threads(settings.thread_count, "preprocess") as threads:
        model = ServedModel(triton, manifest)
        turns = CallerTurns(threads, settings.thread_count)
        encoder = ModelEncoder(model, texts, turns, version.number, heif)
        queries = QueryEncodings(encoder, turns, settings.query_cache_bytes)
        stage = LocalEncoder(encoder, queries, version.describe)
        servicer = EncoderServicer(stage, settings.default_timeout_seconds)

        def register(server: grpc.aio.Server) -> None:
            add_EncoderServiceServicer_to_server(servicer, server)
            add_ModelServiceServicer_to_server(ModelServicer(version.describe), server)

        async def check() -> None:
            version.look()
            note_model("encoder", version.describe())
            await queries.check()

        yield Service(
            name="encoder",
            register=register,
            service_names=[
                encoder_service_pb2.DESCRIPTOR.services_by_name["EncoderService"].full_name,
                MODEL_SERVICE_NAME,
            ],
            warm=check,
            ready=check,
            close=triton.close,
            stage=stage,
        )


def _heif_or_exit() -> HeifReader:
    try:
        return heif_reader()
    except ValueError as error:
        print(f"ENCODER_HEIF_ENABLED: {error}", file=sys.stderr)
        raise SystemExit(2) from error
