"""A gateway that is killed under load: nothing acknowledged is lost, and callers continue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx2
import pytest

from tandem.stack.free_ports import free_ports
from tandem.stack.stack import LocalStack
from tests.support.gateway_svc.own_process import gateway_process
from tests.support.local.tiny_stack import TINY_STACK
from tests.support.security.run_counts import run_count

pytestmark = [TINY_STACK, pytest.mark.timeout(900)]

INDEX_ID = "killed-gateway"
KILL_COUNT = run_count(1, 20)
BATCH_SIZE = 4
SENDER_COUNT = 3
# Between two kills, so that each meets a pool of open connections with calls in flight.
ANSWERED_COUNT = 6


@dataclass
class Load:
    """Callers that share one pool of connections, and what became of their calls."""

    client: httpx2.AsyncClient
    acknowledged: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    answered: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=count)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stores batches and searches, again and again, until it is left."""
        callers = [*(self._store for _ in range(SENDER_COUNT)), *(self._search,) * SENDER_COUNT]
        tasks = [asyncio.create_task(each()) for each in callers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended

    async def until_answered(self, further: int) -> None:
        """Waits until so many more of each kind are answered."""
        least = {kind: self.answered[kind] + further for kind in ("store", "search")}
        async with asyncio.timeout(240.0):
            while any(self.answered[kind] < number for kind, number in least.items()):  # noqa: ASYNC110 (counters)
                await asyncio.sleep(0.02)

    async def until_broken(self, number: int) -> None:
        """Waits until so many calls were cut or found no gateway."""
        async with asyncio.timeout(240.0):
            while self.broken.total() < number:  # noqa: ASYNC110 (a counter)
                await asyncio.sleep(0.02)

    async def _store(self) -> None:
        while True:
            names = [f"item-{next(self.numbers):06}" for _ in range(BATCH_SIZE)]
            self.sent.update(names)
            items = [{"item_id": each, "content": f"a dog of {each}"} for each in names]
            answer = await self._answer("store", "PUT", "/v1/items", {"items": items})
            assert [each["item_id"] for each in answer["results"]] == names
            assert not [each for each in answer["results"] if "error" in each]
            self.acknowledged.update(names)

    async def _search(self) -> None:
        while True:
            await self._answer("search", "POST", "/v1/search", {"query": "two dogs"})

    async def _answer(
        self, kind: str, method: str, path: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        """Sends until it is answered; a call that was cut is sent again as it was."""
        while True:
            try:
                response = await self.client.request(
                    method, path, json={"index_id": INDEX_ID, **body}
                )
            except httpx2.TransportError as error:
                self.broken[type(error).__name__] += 1
            else:
                self.statuses[response.status_code] += 1
                if response.status_code == 200:
                    self.answered[kind] += 1
                    found: dict[str, Any] = response.json()
                    return found
            await asyncio.sleep(0.1)


async def stored_ids(client: httpx2.AsyncClient) -> set[str]:
    """Returns the ids of all items, page by page."""
    found: set[str] = set()
    page_token = ""
    while True:
        query = {"index_id": INDEX_ID, "page_size": "100", "page_token": page_token}
        response = await client.get("/v1/items", params=query)
        assert response.status_code == 200, response.text
        page = response.json()
        found.update(page["item_ids"])
        page_token = page["next_page_token"]
        if not page_token:
            return found


async def test_acknowledged_items_survive_a_kill_and_callers_continue(
    tiny_stack: LocalStack,
) -> None:
    [port] = free_ports(1)
    settings = {"GATEWAY_ADDRESS": f"127.0.0.1:{port}", "LOG_LEVEL": "error"}
    pool = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60.0)
    async with pool as client:
        load = Load(client)
        async with load.running():
            for _ in range(KILL_COUNT):
                async with gateway_process(tiny_stack.address, **settings) as gateway:
                    await load.until_answered(ANSWERED_COUNT)
                    broken_before = load.broken.total()
                    gateway.process.kill()
                    await gateway.end()
                    await load.until_broken(broken_before + 1)
            async with gateway_process(tiny_stack.address, **settings):
                await load.until_answered(ANSWERED_COUNT)
                acknowledged = set(load.acknowledged)
                found = await stored_ids(client)

    told = f"{dict(load.statuses)}, {dict(load.broken)}, {len(acknowledged)} items"
    print(f"{KILL_COUNT} kills: {told}")
    assert acknowledged - found == set(), told
    assert len(acknowledged) >= (KILL_COUNT + 1) * ANSWERED_COUNT * BATCH_SIZE
    # What was never sent is not found, so the listing can tell.
    assert found <= load.sent, told
    # Before the first item there is no index, and a gateway that starts has no connection yet.
    assert set(load.statuses) <= {200, 404, 503}, told
