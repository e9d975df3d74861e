"""A trace continues in Triton, which is not ours, by the header that it reads."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.v1 import content_pb2
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tests.support.encoder_svc.encoder_process import EncoderProcess

TRACE_ID, UNSAMPLED_ID = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "b7ad6b7169203331"
START_SECONDS = 120

# Runs with the others that take the small model, which is exported once.


@dataclass
class NotingTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Notes what the headers of each inference say of a trace, and refuses it."""

    told: list[str | None] = field(default_factory=list)

    async def ServerMetadata(
        self, request: object, context: grpc.aio.ServicerContext
    ) -> service_pb2.ServerMetadataResponse:
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    async def ModelMetadata(
        self, request: object, context: grpc.aio.ServicerContext
    ) -> service_pb2.ModelMetadataResponse:
        return service_pb2.ModelMetadataResponse(name="joint_encoder")

    async def ModelInfer(
        self, request: object, context: grpc.aio.ServicerContext
    ) -> service_pb2.ModelInferResponse:
        headers = dict(context.invocation_metadata() or ())
        traceparent = headers.get("traceparent")
        self.told.append(None if traceparent is None else str(traceparent))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "a test's")
        raise AssertionError("abort raises")


@pytest.fixture
async def triton() -> AsyncIterator[tuple[NotingTriton, str]]:
    """Listens in Triton's place, on loopback."""
    noting, server = NotingTriton(), grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(noting, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield noting, f"127.0.0.1:{port}"
    await server.stop(None)


async def test_triton_gets_a_sampled_trace(
    triton: tuple[NotingTriton, str], tiny_repository: Path, tmp_path: Path
) -> None:
    """The caller's trace and span, for without a collector none is made; of another, nothing."""
    noting, address = triton
    process = EncoderProcess(tiny_repository, address, tmp_path / "encoder.log")
    try:
        async with await listening(process) as channel:
            await encode(channel, f"00-{UNSAMPLED_ID}-{SPAN_ID}-00")
            await encode(channel, f"00-{TRACE_ID}-{SPAN_ID}-01")
    finally:
        process.kill()

    sampled = [each for each in noting.told if each is not None]
    assert sampled, "Triton was not told"
    assert set(sampled) == {f"00-{TRACE_ID}-{SPAN_ID}-01"}
    assert len(noting.told) > len(sampled), "the other search did not come to Triton"


async def listening(process: EncoderProcess) -> grpc.aio.Channel:
    """Returns a channel once the process listens; it never serves, for no inference succeeds."""
    async with asyncio.timeout(START_SECONDS):
        while (channel := process.channel()) is None:
            assert process.ending() is None, process.log()
            await asyncio.sleep(0.02)
    return channel


async def encode(channel: grpc.aio.Channel, traceparent: str) -> None:
    """Requests one text's encoding, which fails because the model is missing."""
    request = pb.EncodeContentsRequest(contents=[content_pb2.Content(text=f"a dog {traceparent}")])
    with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
        await EncoderServiceStub(channel).EncodeContents(
            request, metadata=(("traceparent", traceparent),), timeout=30
        )
