"""Calls to encoder_svc: its answers in our types, checked for faults."""

import grpc
import pytest

from tandem import errors
from tandem.chassis.calls.channels import open_channel
from tandem.contract.content import TextContent
from tandem.contract.deadline import Deadline
from tandem.errors import InternalFault
from tandem.remote.encoder import RemoteEncoder
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1 import error_reason_pb2
from tandem.v1.encoder_service_pb2_grpc import (
    EncoderServiceServicer,
    add_EncoderServiceServicer_to_server,
)


def soon() -> Deadline:
    """Returns a deadline."""
    return Deadline.after(10)


class _Answering(EncoderServiceServicer):
    def __init__(self, response: pb.EncodeContentsResponse) -> None:
        self._response = response

    async def EncodeContents(
        self, request: pb.EncodeContentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.EncodeContentsResponse:
        return self._response


async def encode_with(response: pb.EncodeContentsResponse) -> object:
    """Returns what one content's encoding is where the encoder answers so."""
    server = grpc.aio.server()
    add_EncoderServiceServicer_to_server(_Answering(response), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            encoded = await RemoteEncoder(channel).encode([TextContent("0")], soon())
            [result] = encoded.outcomes
            return result
    finally:
        await server.stop(None)


async def test_an_answer_of_another_length_is_a_fault() -> None:
    """Otherwise an item could be stored under another's embedding."""
    with pytest.raises(InternalFault, match="0 of 1"):
        await encode_with(pb.EncodeContentsResponse())


@pytest.mark.parametrize("reason", [0, 9999])
async def test_a_reason_of_a_newer_encoder_is_still_an_error(reason: int) -> None:
    error = error_reason_pb2.ItemError(reason=reason, message="too purple")  # type: ignore[arg-type]

    result = await encode_with(pb.EncodeContentsResponse(results=[pb.EncodeResult(error=error)]))

    assert isinstance(result, InternalFault)
    assert "too purple" in result.message


async def test_a_service_that_is_not_there_is_named() -> None:
    """So the reader of the error knows which service to look at."""
    async with open_channel("127.0.0.1:1") as channel:
        with pytest.raises(errors.ServiceUnavailable, match="encoder"):
            await RemoteEncoder(channel).encode([TextContent("0")], soon())
