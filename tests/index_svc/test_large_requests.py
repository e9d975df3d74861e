"""A shard's searches with very large filters leave its event loop to others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.index_svc.test_servicer import served
from tests.support.chassis.loop_turns import LARGE_FILTER, fewest_long_turns
from tests.support.index_svc.encoded_items import search_request, upsert_request
from tests.support.item_store.made_items import text_item

CALL_COUNT = 8


async def test_the_largest_filters_do_not_block_the_loop(tmp_path: Path) -> None:
    """Judged as the orchestrator is: a call needs about four conversions of its filter."""
    request = search_request([1])
    request.filter.CopyFrom(LARGE_FILTER)
    async with served(tmp_path / "shard") as channel:
        stub = IndexServiceStub(channel)
        await stub.UpsertItems(upsert_request([text_item("a", 1)]))
        await stub.SearchEmbeddings(request)

        async def calls() -> None:
            answers = await asyncio.gather(
                *(stub.SearchEmbeddings(request, timeout=60) for _ in range(CALL_COUNT))
            )
            assert all(answer.item_count == 1 for answer in answers)

        turns = await fewest_long_turns(calls)
    assert turns.long_count < CALL_COUNT / 2, turns
