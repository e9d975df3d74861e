"""What a kept match logit is of, and what it takes."""

import asyncio
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from tandem.chassis.capacity.single_flight_cache import Computation
from tandem.contract.content import ImageTokens, TextTokens, Tokens
from tandem.contract.inference_cost import InferenceCost
from tandem.local.reranking.match_logit_cache import PairKey, make_cache, query_digest


def text(*ids: int) -> TextTokens:
    return TextTokens(np.array(ids, dtype=np.int32))


def image(rows: int, width: int) -> ImageTokens:
    return ImageTokens(np.zeros((rows, width), dtype=np.float16))


QUERIES: dict[str, tuple[Tokens, str, int]] = {
    "a text": (text(2, 10, 3), "m", 1),
    "another": (text(2, 11, 3), "m", 1),
    "one of more tokens": (text(2, 10, 3, 0), "m", 1),
    "for another model": (text(2, 10, 3), "m2", 1),
    "for another version": (text(2, 10, 3), "m", 2),
    "an image": (image(2, 3), "m", 1),
    "one of the same bytes": (image(3, 2), "m", 1),
    "a text of the same bytes": (text(0, 0, 0), "m", 1),
}


def test_queries_are_distinguished() -> None:
    """By model, version, modality, shape and values; equal ones are not."""
    digests = {name: query_digest(*query) for name, query in QUERIES.items()}

    assert len(set(digests.values())) == len(QUERIES)
    assert query_digest(text(2, 10, 3), "m", 1) == digests["a text"]


@pytest.mark.parametrize(
    "entry_count", [5_000, pytest.param(20_000, marks=pytest.mark.slow), 50_000]
)
def test_an_entrys_size_is_what_the_limit_counts(entry_count: int) -> None:
    cache = make_cache(1 << 30)

    async def compute(keys: Sequence[PairKey]) -> Computation[float, InferenceCost]:
        return Computation([number + 0.5 for number in range(len(keys))], InferenceCost())

    async def fill() -> None:
        # As they come out of messages: a search's own objects, 50 candidates each.
        for search in range(entry_count // 50):
            digest = search.to_bytes(16, "big")
            index_id = f"scenes-{search % 3}"
            keys = [
                PairKey(digest, index_id, f"item-{search}-{number}", (search << 40) + number)
                for number in range(50)
            ]
            await cache.get(keys, compute, 10.0)

    asyncio.run(fill())
    cache = make_cache(1 << 30)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        asyncio.run(fill())
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(cache) == entry_count
    assert (after - before) == pytest.approx(cache.used_bytes, rel=0.3)
