"""benchmarks/unwatched.py: what bench_watching.py compares with is really not watched."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from pathlib import Path

import pytest

from tandem.chassis.channels import open_channel
from tandem.local.free_ports import free_ports
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.faults.supervisor import ROOT, Supervised

MODULE = "tests.support.chassis.lone_service"


def metrics_page(port: int) -> str:
    """Returns what Prometheus would get."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        body: bytes = response.read()
    return body.decode()


@pytest.mark.parametrize(
    ("program", "is_watched"),
    [(["-m"], True), ([str(ROOT / "benchmarks" / "unwatched.py")], False)],
    ids=["watched", "unwatched"],
)
async def test_a_call_is_told_of_only_where_it_is_watched(
    tmp_path: Path, program: list[str], is_watched: bool
) -> None:
    """The same service answers both times; its log and its metrics tell of it once."""
    port, metrics_port = free_ports(2)
    settings = [f"port={port}", f"metrics_port={metrics_port}", f"folder={tmp_path}"]
    command = [sys.executable, *program, MODULE, *settings]
    process = Supervised(command, tmp_path / "log", {"PYTHONPATH": str(ROOT)})
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            request = pb.SearchItemsRequest(index_id="0")
            await SearchServiceStub(channel).SearchItems(request, timeout=60, wait_for_ready=True)
        await asyncio.sleep(0.2)
        told = await asyncio.to_thread(metrics_page, metrics_port)
        log = process.log()
    finally:
        process.kill()

    assert ('method="SearchItems"' in told) is is_watched
    assert ('stage="sleep"' in told) is is_watched
    assert ('"call served"' in log) is is_watched
