"""`tandem search`: what it prints about a partial answer."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.v1 import error_reason_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import Search, ToldService, search_server

FULL = pb.Coverage(answered_shard_count=4, shard_count=4, covered_item_count=60, item_count=60)
PARTIAL = pb.Coverage(
    answered_shard_count=3,
    shard_count=4,
    covered_item_count=1234,
    item_count=2000,
    missing_shards=[
        pb.MissingShard(shard_number=2, reason=error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED)
    ],
)


@contextmanager
def serving(coverage: pb.Coverage) -> Iterator[tuple[str, ToldService]]:
    """Serves answers of this coverage."""

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        return pb.SearchItemsResponse(coverage=coverage)

    with serving_search(search) as served:
        yield served


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


@pytest.mark.parametrize(("coverage", "is_warned"), [(PARTIAL, True), (FULL, False)])
def test_a_partial_answer_is_warned_of(coverage: pb.Coverage, is_warned: bool) -> None:
    with serving(coverage) as (address, _):
        result = CliRunner().invoke(app, ["search", "two dogs", "--address", address])

    assert result.exit_code == 0
    assert ("partial answer" in result.stderr) is is_warned
    assert "partial answer" not in result.stdout
