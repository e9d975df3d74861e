"""A process that hangs is told from one that is slow: a real one, stopped by a signal."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tandem.chassis.calls.channels import open_channel
from tandem.chassis.calls.hung_peer import Peer
from tandem.errors import DeadlineExceeded, ServiceUnavailable
from tandem.stack.free_ports import free_ports
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.faults.supervisor import Supervised
from tests.support.index_svc.shard_process import is_serving

# A call for so many seconds of sleep, and one that the stopped process gets.
SLOW = pb.SearchItemsRequest(index_id="2.5")
QUICK = pb.SearchItemsRequest()


@asynccontextmanager
async def lone_service(folder: Path) -> AsyncIterator[tuple[Supervised, int]]:
    """Runs a service that sleeps as long as it is asked to; yields it and its port."""
    port, metrics_port = free_ports(2)
    settings = {"port": port, "metrics_port": metrics_port, "folder": folder}
    running = Supervised(
        [
            *(sys.executable, "-m", "tests.support.chassis.lone_service"),
            *(f"{name}={value}" for name, value in settings.items()),
        ],
        folder / "log",
        {},
    )
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            while not await is_serving(channel):
                assert running.ending() is None, running.log()
        yield running, port
    finally:
        running.kill()


@pytest_asyncio.fixture
async def process(tmp_path: Path) -> AsyncIterator[tuple[Supervised, grpc.aio.Channel]]:
    async with (
        lone_service(tmp_path) as (running, port),
        open_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield running, channel


async def test_a_call_to_a_stopped_process_is_given_up_and_one_to_a_slow_process_is_not(
    process: tuple[Supervised, grpc.aio.Channel],
) -> None:
    """Before gRPC's pings end the connection after 3 s and more, which is another error. A short
    call has no more time than its own.
    """
    running, channel = process
    peer, method = Peer(channel, "lone"), SearchServiceStub(channel).SearchItems
    await peer.call(method, SLOW, 60.0)

    running.pause()
    start_time = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="a call to lone, which hangs"):
        await peer.call(method, QUICK, 60.0)
    given_up_seconds = time.monotonic() - start_time
    with pytest.raises(DeadlineExceeded, match=r"a call to lone;"):
        await peer.call(method, QUICK, 0.2)
    running.resume()

    assert given_up_seconds > 1.9
    await peer.call(method, QUICK, 60.0)


async def test_the_end_of_a_process_is_its_calls_end_and_not_a_hang(
    process: tuple[Supervised, grpc.aio.Channel],
) -> None:
    running, channel = process
    running.kill()
    with pytest.raises(ServiceUnavailable):
        await Peer(channel, "lone").call(SearchServiceStub(channel).SearchItems, QUICK, 60.0)


async def test_a_slow_process_is_not_given_up_because_another_of_its_name_hangs(
    tmp_path: Path,
) -> None:
    """Several rerank_svc may be behind one name, over an engine."""
    folders = tmp_path / "a", tmp_path / "b"
    for each in folders:
        each.mkdir()
    async with (
        lone_service(folders[0]) as (hung, port),
        lone_service(folders[1]) as (_, other),
        open_channel(f"ipv4:127.0.0.1:{port},127.0.0.1:{other}") as channel,
    ):
        peer, method = Peer(channel, "lone"), SearchServiceStub(channel).SearchItems
        for _ in range(4):  # until both are connected
            await peer.call(method, QUICK, 60.0)
        calls = [asyncio.ensure_future(peer.call(method, SLOW, 60.0)) for _ in range(2)]
        await asyncio.sleep(0.2)
        await peer.call(method, QUICK, 60.0)  # so that each call's health call goes to the other
        hung.pause()

        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    # The stopped one's call ends with its connection.
    assert not any(isinstance(each, DeadlineExceeded) for each in outcomes), outcomes
