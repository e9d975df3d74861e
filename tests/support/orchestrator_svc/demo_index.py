"""Serves the demo's ids in an index "scenes", scored, from a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tandem.contract.content import ImageContent
from tandem.contract.search.ingest import IncomingItem
from tests.support.client.search_server import MODEL
from tests.support.orchestrator_svc.downstream import door_address, ingest, stack

ITEM_IDS = [f"scenes-test-{n // 4:06}-{n % 4}" for n in range(40)]


@contextmanager
def demo_index() -> Iterator[str]:
    """Yields the address of the orchestrator; the CE prefers the last items to the first."""
    addresses: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with stack() as behind, door_address(behind) as address:
            items = [
                IncomingItem(item_id, ImageContent(str(n * 2).encode()))
                for n, item_id in enumerate(ITEM_IDS)
            ]
            assert not any((await ingest(behind.ingester, items, index_id="scenes")).outcomes)
            for shard in behind.shards:
                shard.logits = {item_id: n / 10 for n, item_id in enumerate(ITEM_IDS)}
            behind.encoder.description = MODEL
            addresses.append(address)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield addresses[0]
    finally:
        done.set()
        thread.join()
