"""`tandem search`: what it prints about a partial answer."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import Search, ToldService, search_server

FULL = pb.Coverage(answered_shard_count=4, shard_count=4, covered_item_count=60, item_count=60)


@contextmanager
def serving_search(search: Search) -> Iterator[tuple[str, ToldService]]:
    """Serves from a loop in a thread: the command blocks this one."""
    served: list[tuple[str, ToldService]] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with search_server(search) as address_and_service:
            served.append(address_and_service)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield served[0]
    finally:
        done.set()
        thread.join()
