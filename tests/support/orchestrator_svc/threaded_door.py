"""A real orchestrator over fake services in a loop of its own, for callers without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.client.search_server import MODEL
from tests.support.orchestrator_svc.downstream import door_address, stack


@contextmanager
def threaded_door(logits: Mapping[str, float] | None = None) -> Iterator[str]:
    """Serves from a thread, and yields host:port; `logits` are the cross-encoder's by item id."""
    addresses: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with stack() as behind, door_address(behind) as address:
            behind.encoder.description = MODEL
            for shard in behind.shards:
                shard.description = MODEL
                shard.logits = dict(logits or {})
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
