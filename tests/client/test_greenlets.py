"""The clients in a process that gevent has patched, as workers of gunicorn and celery are.

gevent is in no lock of ours: this test runs after `pip install gevent==26.9.0` next to the
environment.
"""

from __future__ import annotations

import asyncio
import sys

import pytest

from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import search_server

GREENLETS = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from tandem.client import Client
with Client(sys.argv[1]) as one, Client(sys.argv[1]) as other:
    ticks = 0
    def tick():
        global ticks
        while True:
            ticks += 1
            gevent.sleep(0.01)
    gevent.spawn(tick)
    clients = [one, other] * 4
    jobs = [gevent.spawn(each.search, "a", index_id="i") for each in clients]
    gevent.joinall(jobs, raise_error=True)
print(ticks)
"""


async def test_other_greenlets_run_while_calls_wait() -> None:
    """Eight searches of half a second, side by side; otherwise one after the other."""
    pytest.importorskip("gevent")
    in_flight, most = 0, 0

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.5)
        in_flight -= 1
        return pb.SearchItemsResponse()

    async with search_server(search) as (address, _):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", GREENLETS, address, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 0
    assert most == 8
    assert int(printed) > 15
