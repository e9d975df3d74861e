"""The gateway before an orchestrator that gets ten times the requests that it can answer.

`make test-security` holds the goodput; with every change it is seen how the others are refused.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.support.loads.open_loop import Seen, load
from tandem.errors import Overloaded
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import Search, search_server
from tests.support.gateway_svc.own_process import gateway_process
from tests.support.security.run_counts import is_full, run_count

PLACE_COUNT, HELD_SECONDS = 4, 0.5
CAPACITY_PER_SECOND = PLACE_COUNT / HELD_SECONDS
FACTORS = (1, 2, 10)
SECONDS = run_count(1, 20)
LEAST_GOODPUT = 0.8
DEADLINE_SECONDS = 60.0


def limited_search() -> Search:
    """Returns a search that has a few places, and refuses the rest at once."""
    free = PLACE_COUNT

    async def search(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        nonlocal free
        if not free:
            raise Overloaded(what="all places are taken", retry_delay_seconds=1.0)
        free -= 1
        try:
            await asyncio.sleep(HELD_SECONDS)
        finally:
            free += 1
        return pb.SearchItemsResponse(items=[pb.RankedItem(item_id="a", match_logit=1.0)])

    return search


@dataclass(frozen=True)
class Sent:
    """What became of searches at one rate."""

    seen: Seen
    goodput: float
    """Answers a second, until all had ended: a busy machine also sends later than it should."""


async def sent(url: str, rate: float) -> Sent:
    """Sends searches at a rate, whether or not earlier ones were answered."""
    start_time = time.monotonic()
    seen = await load(url, "scenes", ["a dog", "a cat"], rate, SECONDS, DEADLINE_SECONDS)
    return Sent(seen, seen.codes["OK"] / (time.monotonic() - start_time))


async def test_ten_times_the_capacity_leaves_the_goodput() -> None:
    """A refused caller learns at once when to retry; nothing else fails."""
    rows: dict[int, Sent] = {}
    async with (
        search_server(limited_search()) as (address, _),
        gateway_process(address) as gateway,
    ):
        port = (await gateway.event("listening"))["port"]
        await gateway.event("serving")
        # Its log, which nothing else reads, would fill its pipe.
        reading = asyncio.create_task(gateway.end())
        for factor in FACTORS:
            url = f"http://127.0.0.1:{port}/"
            rows[factor] = await sent(url, factor * CAPACITY_PER_SECOND)
        gateway.process.terminate()
        assert await reading == 0

    most = max(rows[factor].goodput for factor in FACTORS[:-1])
    goodput = rows[FACTORS[-1]].goodput / most
    told = {factor: dict(row.seen.codes) for factor, row in rows.items()}
    print(f"{told}, {most:.1f} answers/s at most, of which {goodput:.2f} at the last")
    assert all(set(codes) <= {"OK", "RESOURCE_EXHAUSTED"} for codes in told.values()), told
    assert all(codes["OK"] for codes in told.values()), told
    assert not any(row.seen.undelayed_count for row in rows.values()), told
    if is_full():
        assert told[FACTORS[-1]]["RESOURCE_EXHAUSTED"], told
        assert goodput >= LEAST_GOODPUT, told
