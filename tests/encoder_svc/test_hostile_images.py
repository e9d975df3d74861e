"""A running encoder_svc that is sent hostile and damaged pictures among good ones.

The damaged ones are 300 with every change; TANDEM_FUZZ_RUNS=full makes them 100,000.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from pathlib import Path

import grpc
import numpy as np
import pytest
import pytest_asyncio

from tandem.contract.content import ImageContent, TextContent
from tandem.contract.search.answer_wire import content_to_proto
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.wire import ENCODING_WIRE
from tests.encoder_svc.test_servicer import reasons
from tests.support.encoder_svc.encoder_process import EncoderProcess, running_encoder
from tests.support.fuzz.run_counts import fuzz_seed, run_count
from tests.support.pictures.hostile_images import (
    MIB,
    READ,
    TOO_LARGE,
    UNREADABLE,
    damaged_files,
    hostile_images,
    one_bit_png,
)
from tests.support.pictures.pictures import encoded, noise
from tests.support.triton.tiny_triton import Serving

pytestmark = pytest.mark.xdist_group("hostile-images")

GOOD_PICTURE = encoded(noise(size=48), "PNG")
GOOD_TEXT = "two dogs left of one umbrella"
# Longer than any file may take; a call that is not answered in it hangs.
CALL_SECONDS = 30
ALLOWED_GROWTH_BYTES = 64 * MIB
DAMAGED_COUNT = run_count(quick=300, full=100_000)
DAMAGED_PER_CALL = 62


@pytest_asyncio.fixture(scope="module")
async def running(
    tiny_repository: Path, shared_triton: Serving, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[EncoderProcess, grpc.aio.Channel]]:
    """One process for all tests, warm: it has seen a full batch of good pictures."""
    log_path = tmp_path_factory.mktemp("encoder") / "encoder.log"
    async with running_encoder(tiny_repository, shared_triton, log_path) as (process, channel):
        await encode(channel, [GOOD_PICTURE] * DAMAGED_PER_CALL)
        yield process, channel


async def encode(channel: grpc.aio.Channel, files: Sequence[bytes]) -> list[str]:
    """Sends files between a good picture and a good text; returns what became of the files.

    The good ones are encoded, as alone.
    """
    contents = [ImageContent(GOOD_PICTURE), *map(ImageContent, files), TextContent(GOOD_TEXT)]
    response = await EncoderServiceStub(channel).EncodeContents(
        pb.EncodeContentsRequest(contents=map(content_to_proto, contents)),  # type: ignore[arg-type]
        timeout=CALL_SECONDS,
    )
    first, *outcomes, last = reasons(response)
    assert (first, last) == (READ, READ)
    return outcomes


async def grown_bytes(process: EncoderProcess, before_bytes: int) -> int:
    """Returns what it holds more than before.

    At rest: the thread that decoded a picture may let go of it a moment after the answer.
    """
    for _ in range(20):
        if process.memory_bytes() - before_bytes < ALLOWED_GROWTH_BYTES:
            break
        await asyncio.sleep(0.1)
    return process.memory_bytes() - before_bytes


async def test_hostile_files_fail_alone(
    running: tuple[EncoderProcess, grpc.aio.Channel],
) -> None:
    """Each fails as it must, good ones are encoded at the same time, and memory does not grow."""
    process, channel = running
    before = process.memory_bytes()

    for name, hostile in hostile_images().items():
        assert await encode(channel, [hostile.file]) == [hostile.outcome], name

    assert process.ending() is None
    assert await grown_bytes(process, before) < ALLOWED_GROWTH_BYTES


@pytest.mark.timeout(120 + DAMAGED_COUNT // 50)
async def test_damaged_files_fail_alone(
    running: tuple[EncoderProcess, grpc.aio.Channel],
) -> None:
    """They are read, or refused by one of two names; both in earnest."""
    process, channel = running
    before = process.memory_bytes()
    counts = {READ: 0, UNREADABLE: 0, TOO_LARGE: 0}

    files = damaged_files(fuzz_seed(), DAMAGED_COUNT)
    while batch := list(islice(files, DAMAGED_PER_CALL)):
        for outcome in await encode(channel, batch):
            counts[outcome] += 1
        assert process.ending() is None

    grown = await grown_bytes(process, before)
    print(counts, f"grown by {grown / MIB:.0f} MiB")
    assert min(counts[READ], counts[UNREADABLE]) > 0.1 * sum(counts.values()), counts
    assert grown < ALLOWED_GROWTH_BYTES


async def test_good_pictures_among_bad_ones_are_encoded_as_alone(
    running: tuple[EncoderProcess, grpc.aio.Channel],
) -> None:
    """To the last bits that the size of a batch changes."""
    _, channel = running
    good = content_to_proto(ImageContent(GOOD_PICTURE))
    bad = [content_to_proto(ImageContent(each.file)) for each in hostile_images().values()]

    async def embedding(*contents: object) -> np.ndarray:
        response = await EncoderServiceStub(channel).EncodeContents(
            pb.EncodeContentsRequest(contents=contents),  # type: ignore[arg-type]
            timeout=CALL_SECONDS,
        )
        return ENCODING_WIRE.from_proto(response.results[-1].encoding).embedding

    np.testing.assert_allclose(await embedding(*bad[:20], good), await embedding(good), atol=1e-3)


@pytest.mark.slow
async def test_memory_that_is_not_bounded_is_seen(
    tiny_repository: Path, shared_triton: Serving, tmp_path: Path
) -> None:
    """The control: the same measure, of a service without limits."""
    log_path, module = tmp_path / "encoder.log", "tests.support.encoder_svc.sabotaged_encoder"
    async with running_encoder(tiny_repository, shared_triton, log_path, module) as (
        process,
        channel,
    ):
        await encode(channel, [GOOD_PICTURE] * DAMAGED_PER_CALL)
        before = process.memory_bytes()

        await encode(channel, [one_bit_png(6_000, 6_000)])

        assert process.memory_bytes() - before > ALLOWED_GROWTH_BYTES
