"""The fuzzing itself: services that are broken on purpose are found out."""

import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import grpc
import pytest
import structlog

from tandem.chassis.telemetry import log
from tandem.v1 import content_pb2
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import (
    EncoderServiceServicer,
    add_EncoderServiceServicer_to_server,
)
from tests.support.chassis.served import served
from tests.support.fuzz.fuzzing import (
    Tally,
    fuzz,
    made_requests,
    methods,
    told_apart,
)

VALID = [pb.EncodeContentsRequest(contents=[content_pb2.Content(text="two dogs")])]
REQUEST_COUNT = 300
ANSWERS = {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tracebacks of services that crash on purpose are not shown."""
    log.configure("encoder", io.StringIO())
    yield
    structlog.reset_defaults()


class Sound(EncoderServiceServicer):
    """Answers every batch, with nothing."""

    async def EncodeContents(
        self, request: pb.EncodeContentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.EncodeContentsResponse:
        """Answers."""
        return pb.EncodeContentsResponse()


class Crashing(Sound):
    """Takes for granted that there is a content."""

    async def EncodeContents(
        self, request: pb.EncodeContentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.EncodeContentsResponse:
        """Answers, or raises IndexError."""
        return pb.EncodeContentsResponse(model_fingerprint=request.contents[0].text)


@asynccontextmanager
async def channel_to(servicer: EncoderServiceServicer) -> AsyncIterator[grpc.aio.Channel]:
    """Serves behind the chassis's interceptors."""
    register = partial(add_EncoderServiceServicer_to_server, servicer)
    async with served(register, "encoder", ["tandem.v1.EncoderService"]) as channel:
        yield channel


async def tally(servicer: EncoderServiceServicer, seed: int = 1) -> Tally:
    [method] = methods("tandem.v1.EncoderService")
    async with channel_to(servicer) as channel:
        requests = made_requests(method, VALID, ["two dogs"], seed)
        return await fuzz(channel, method, requests, REQUEST_COUNT)


async def test_a_sound_service_has_no_faults() -> None:
    found = await tally(Sound())

    assert told_apart(found.faults) == []
    # The last for a request that repeats its fields too often.
    assert {"OK", "INVALID_ARGUMENT"} <= set(found.codes) <= ANSWERS
    assert min(found.codes[code] for code in ("OK", "INVALID_ARGUMENT")) > REQUEST_COUNT / 10


async def test_a_service_that_crashes_is_found_out() -> None:
    found = await tally(Crashing())

    [told] = told_apart(found.faults)
    assert "INTERNAL" in told
    assert f"{found.codes['INTERNAL']} x tandem.v1.EncoderService.EncodeContents" in told
