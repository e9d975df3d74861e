"""EncoderService over a real server with the chassis's interceptors, before a real Triton."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from encoder_svc.servicer import EncoderServicer
from tandem import errors
from tandem.chassis.access.callers import CALLER_KEY
from tandem.chassis.calls.status import error_from_rpc
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import (
    Content,
    ImageContent,
    TextContent,
)
from tandem.contract.regions import RegionContent
from tandem.contract.search.answer_wire import content_to_proto
from tandem.local.encoding.encoder import ModelEncoder
from tandem.local.encoding.local_encoder import LocalEncoder
from tandem.local.encoding.query_encodings import QueryEncodings
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_texts import ServedTexts
from tandem.model_io.repository.manifest import Manifest
from tandem.stack.free_ports import free_ports
from tandem.triton.client import TritonClient
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import (
    EncoderServiceStub,
    add_EncoderServiceServicer_to_server,
)
from tests.support.chassis.served import served
from tests.support.pictures.pictures import encoded, noise, plain
from tests.support.rerank_svc.served_reranker import undescribed

TIMEOUT_SECONDS = 20


@pytest.fixture(scope="module")
def served_texts(tiny_repository: Path, tiny_manifest: Manifest) -> ServedTexts:
    return ServedTexts.open(tiny_repository, tiny_manifest)


@asynccontextmanager
async def served_channel(
    model: ServedModel, served_texts: ServedTexts, *, cache_bytes: int = 0
) -> AsyncIterator[grpc.aio.Channel]:
    """Serves an encoder and yields a channel to it."""
    with ThreadPoolExecutor(2) as threads:
        turns = CallerTurns(threads, 2)
        encoder = ModelEncoder(model, served_texts, turns)
        queries = QueryEncodings(encoder, turns, cache_bytes)
        local = LocalEncoder(encoder, queries, undescribed)
        servicer = EncoderServicer(local, TIMEOUT_SECONDS)
        async with served(
            partial(add_EncoderServiceServicer_to_server, servicer), "encoder"
        ) as channel:
            yield channel


@pytest_asyncio.fixture(scope="module")
async def stub(
    tiny_served: ServedModel, served_texts: ServedTexts
) -> AsyncIterator[EncoderServiceStub]:
    async with served_channel(tiny_served, served_texts) as channel:
        yield EncoderServiceStub(channel)


def request(*contents: Content) -> pb.EncodeContentsRequest:
    return pb.EncodeContentsRequest(contents=map(content_to_proto, contents))


async def encode(stub: EncoderServiceStub, *contents: Content) -> pb.EncodeContentsResponse:
    return await stub.EncodeContents(request(*contents), timeout=TIMEOUT_SECONDS)


async def refusal(
    stub: EncoderServiceStub,
    message: pb.EncodeContentsRequest,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[grpc.StatusCode, errors.TandemError]:
    """Returns the code and the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.EncodeContents(message, timeout=timeout_seconds)
    return caught.value.code(), error_from_rpc(caught.value, "encoder")


def reasons(response: pb.EncodeContentsResponse) -> list[str]:
    """Returns what became of each content: "" where it was encoded, else the reason."""
    return [
        error_reason_pb2.ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_")
        if result.HasField("error")
        else ""
        for result in response.results
    ]


async def test_a_model_of_pixels_refuses_regions(stub: EncoderServiceStub) -> None:
    """By name, and only them: the text next to them is encoded."""
    regions = RegionContent.of([[1.0]], [[0, 0, 1, 1]], image_width=5, image_height=5)

    response = await encode(stub, regions, TextContent("two dogs"))

    assert reasons(response) == ["IMAGE_INPUT_UNSUPPORTED", ""]
    assert "reads images and got a detector's regions" in response.results[0].error.message


async def test_a_message_without_a_content_fails_alone(stub: EncoderServiceStub) -> None:
    contents = [content_pb2.Content(), content_to_proto(TextContent("two dogs"))]

    response = await stub.EncodeContents(
        pb.EncodeContentsRequest(contents=contents), timeout=TIMEOUT_SECONDS
    )

    assert reasons(response) == ["CONTENT_MISSING", ""]


async def test_text_that_is_not_utf8_is_malformed(
    tiny_served: ServedModel, served_texts: ServedTexts
) -> None:
    """A whole request that does not parse is the caller's fault, not ours."""
    content = b"\x0a\x02\xff\xfe"  # field 1, two bytes
    batch = b"\x0a" + bytes([len(content)]) + content

    async with served_channel(tiny_served, served_texts) as channel:
        call = channel.unary_unary("/tandem.v1.EncoderService/EncodeContents")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(batch, timeout=TIMEOUT_SECONDS)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error_from_rpc(caught.value, "encoder"), errors.RequestMalformed)


async def test_without_triton_the_model_is_unavailable(
    tiny_manifest: Manifest, served_texts: ServedTexts
) -> None:
    """The whole call fails, soon and by name; bad contents are not blamed."""
    [port] = free_ports(1)
    triton = TritonClient(f"127.0.0.1:{port}")
    try:
        model = ServedModel(triton, tiny_manifest)
        async with served_channel(model, served_texts) as channel:
            message = request(TextContent("two dogs"), TextContent(""))
            code, error = await asyncio.wait_for(refusal(EncoderServiceStub(channel), message), 60)
    finally:
        await triton.close()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert isinstance(error, errors.ModelUnavailable)


async def test_canary_follows_triton(
    tiny_served: ServedModel, tiny_manifest: Manifest, served_texts: ServedTexts
) -> None:
    """check() is silent before a Triton that answers, and names the model before none."""
    [port] = free_ports(1)
    triton = TritonClient(f"127.0.0.1:{port}")
    try:
        with ThreadPoolExecutor(1) as threads:
            turns = CallerTurns(threads, 1)
            await ModelEncoder(tiny_served, served_texts, turns).check()
            lonely = ModelEncoder(ServedModel(triton, tiny_manifest), served_texts, turns)
            with pytest.raises(errors.ModelUnavailable):
                await asyncio.wait_for(lonely.check(), 60)
    finally:
        await triton.close()


async def test_stages_are_measured(stub: EncoderServiceStub) -> None:
    """A call adds one observation to each stage."""

    def counts() -> list[float]:
        name = "tandem_encoder_stage_duration_seconds_count"
        return [
            REGISTRY.get_sample_value(name, {"stage": stage}) or 0.0
            for stage in ("preprocess", "inference")
        ]

    before = counts()
    await encode(stub, TextContent("two dogs"))

    assert counts() == [count + 1 for count in before]


async def test_one_callers_pictures_keep_no_other_caller_from_the_threads(
    stub: EncoderServiceStub,
) -> None:
    """Another's small pictures are encoded among 64 flat ones of 25 megapixels, 1 kB each."""
    flat = ImageContent(encoded(plain(size=(5000, 4999)), "WEBP", lossless=True))
    small = ImageContent(encoded(noise(size=48), "PNG"))

    async def ask(caller: str, seconds: float, *contents: Content) -> list[str]:
        metadata = ((CALLER_KEY, caller),)
        answer = stub.EncodeContents(request(*contents), timeout=seconds, metadata=metadata)
        return reasons(await answer)

    flood = asyncio.create_task(ask("flood", 2.5, *[flat] * 64))
    await asyncio.sleep(0.2)
    for _ in range(4):
        assert await ask("other", TIMEOUT_SECONDS, small) == [""]
        assert not flood.done(), "the flood was over before it could keep anybody waiting"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await flood

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # Nothing of the flood is decoded any more.
    before = time.process_time()
    await asyncio.sleep(1)
    assert time.process_time() - before < 0.8
