"""Requests of very many values never block the event loop for long."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest

from tandem.v1 import search_service_pb2 as pb
from tests.support.chassis.loop_turns import LARGE_FILTER, fewest_long_turns
from tests.support.chassis.open_door import BATCH, SEARCH, connection, raw, refusal
from tests.support.orchestrator_svc.downstream import door_address, stack

STREAM = SEARCH.replace("SearchItems", "StreamSearchItems")
CALL_COUNT = 8

_SEARCH = pb.SearchItemsRequest(index_id="scenes", query={"text": "1"}, filter=LARGE_FILTER)
_WRITTEN = pb.SearchItemsRequest(
    index_id="scenes", query={"text": "1"}, filter_text=f"a in ({', '.join(['12345678'] * 800)})"
)
REQUESTS: dict[str, Any] = {
    SEARCH: _SEARCH,
    STREAM: pb.StreamSearchItemsRequest(search=_SEARCH),
    BATCH: pb.BatchSearchItemsRequest(searches=[_SEARCH]),
    f"{BATCH} of texts": pb.BatchSearchItemsRequest(searches=[_WRITTEN] * 8),
}


async def outcome(call: Any) -> str:
    """Returns how a call ends whose answers are taken."""
    with suppress(grpc.aio.AioRpcError):
        async for _ in call:
            pass
    return await refusal(call)


# One search of a batch is one of the eight of the batch of texts.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == BATCH else ()) for name in REQUESTS],
)
async def test_the_largest_filters_do_not_block_the_loop(name: str) -> None:
    """Judged by the loop's own turns, in processor time: a call needs about seven conversions of
    its filter (to count it, read it, check it and make it again), of which none may be a turn.
    """
    body = REQUESTS[name].SerializeToString()
    path = name.split()[0]
    async with stack() as behind, door_address(behind) as to, connection(to) as channel:
        await outcome(raw(channel, path)(iter([body])))
        told: list[str] = []

        async def calls() -> None:
            made = [raw(channel, path)(iter([body])) for _ in range(CALL_COUNT)]
            told.extend(await asyncio.gather(*map(outcome, made)))

        turns = await fewest_long_turns(calls)
    assert set(told) <= {"INDEX_NOT_FOUND", "OK", "DEADLINE_EXCEEDED"}
    assert turns.long_count < CALL_COUNT / 2, turns
