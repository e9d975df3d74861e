"""What a kept encoding is of, and what it takes."""

import asyncio
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from tandem.chassis.capacity.single_flight_cache import Computation
from tandem.contract.content import (
    Content,
    Encoding,
    ImageContent,
    ImageTokens,
    TextContent,
    TextTokens,
    TextUse,
    TruncationPolicy,
)
from tandem.errors import TandemError
from tandem.local.encoding.encoding_cache import QueryKey, content_digest, detached, make_cache
from tandem.stages.encoding import EncodedBatch

ENTRY_COUNT = 200
BATCH_SIZE = 20


def test_contents_are_distinguished() -> None:
    """By modality and every byte; equal ones are not."""
    contents: list[Content] = [TextContent("dogs"), TextContent("dogs "), ImageContent(b"dogs")]

    assert len({content_digest(content) for content in contents}) == 3
    assert content_digest(TextContent("dogs")) == content_digest(contents[0])


def batch(is_image: bool, window_count: int) -> list[Encoding]:
    """Returns encodings as the encoder makes them: rows of its batch's arrays."""
    embeddings = np.zeros((BATCH_SIZE * window_count, 192), dtype=np.float32)
    images = np.zeros((len(embeddings), 49, 192), dtype=np.float16)
    windows = [
        Encoding(
            embedding,
            ImageTokens(rows) if is_image else TextTokens(np.arange(20, dtype=np.int32)),
            TextUse(30, 20),
        )
        for embedding, rows in zip(embeddings, images, strict=True)
    ]
    starts = range(0, len(windows), window_count)
    return [
        Encoding(first.embedding, first.tokens, TextUse(30, 20), tuple(further))
        for first, *further in (windows[start : start + window_count] for start in starts)
    ]


@pytest.mark.parametrize(("is_image", "window_count"), [(True, 1), (False, 1), (False, 4)])
def test_an_entrys_size_is_what_the_limit_counts(is_image: bool, window_count: int) -> None:
    """To within a fifth, as tracemalloc counts it."""

    async def make(
        keys: Sequence[QueryKey],
    ) -> Computation[Encoding | TandemError, EncodedBatch]:
        encodings = [detached(encoding) for encoding in batch(is_image, window_count)]
        return Computation(encodings[: len(keys)], EncodedBatch([], ""))

    async def fill() -> tuple[int, int]:
        cache = make_cache(1 << 30)
        before, _ = tracemalloc.get_traced_memory()
        for start in range(0, ENTRY_COUNT, BATCH_SIZE):
            keys = [
                QueryKey(number.to_bytes(16, "big"), TruncationPolicy.ERROR, 1)
                for number in range(start, start + BATCH_SIZE)
            ]
            await cache.get(keys, make, 10.0)
        after, _ = tracemalloc.get_traced_memory()
        assert len(cache) == ENTRY_COUNT
        return after - before, cache.used_bytes

    tracemalloc.start()
    try:
        taken_bytes, counted_bytes = asyncio.run(fill())
    finally:
        tracemalloc.stop()

    assert taken_bytes == pytest.approx(counted_bytes, rel=0.2)
