"""gateway_svc's process, from its start to its end, as an operator sees it."""

from __future__ import annotations

import asyncio
import signal

import httpx2

from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import search_server
from tests.support.gateway_svc.own_process import gateway_process
from tests.support.gateway_svc.running import SEARCH


async def test_it_serves_and_a_signal_lets_calls_in_flight_end() -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        began.set()
        await may_end.wait()
        return pb.SearchItemsResponse(model_fingerprint="f1")

    async with (
        search_server(slow) as (address, _),
        gateway_process(address) as gateway,
        httpx2.AsyncClient(trust_env=False, timeout=60.0) as client,
    ):
        port = (await gateway.event("listening"))["port"]
        await gateway.event("serving")
        searching = asyncio.create_task(
            client.post(f"http://127.0.0.1:{port}{SEARCH}", json={"indexId": "scenes"})
        )
        await began.wait()
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.event("draining")
        may_end.set()
        response = await searching
        code = await gateway.end()

    assert (response.status_code, code) == (200, 0)
    assert response.json() == {"modelFingerprint": "f1"}


async def test_without_the_orchestrator_it_answers_that_it_is_not_there() -> None:
    """It is not ready, and says why to those who call all the same."""
    async with (
        search_server() as (address, _),
        gateway_process(address) as gateway,
        httpx2.AsyncClient(trust_env=False, timeout=60.0) as client,
    ):
        port = (await gateway.event("listening"))["port"]
        await gateway.event("serving")
        served = await client.post(f"http://127.0.0.1:{port}{SEARCH}", json={})

    assert served.status_code == 200

    async with (
        gateway_process("127.0.0.1:1") as gateway,
        httpx2.AsyncClient(trust_env=False, timeout=60.0) as client,
    ):
        port = (await gateway.event("listening"))["port"]
        told = await gateway.event("not warm yet")
        response = await client.post(
            f"http://127.0.0.1:{port}{SEARCH}", json={}, headers={"connect-timeout-ms": "5000"}
        )

    assert told["reason"] == "SERVICE_UNAVAILABLE"
    assert response.status_code == 503
    assert response.json()["code"] == "unavailable"


async def test_a_port_in_use_ends_the_start() -> None:
    async with search_server() as (address, _), gateway_process(address) as first:
        port = (await first.event("listening"))["port"]
        async with gateway_process(address, GATEWAY_ADDRESS=f"127.0.0.1:{port}") as second:
            told = await second.event("cannot listen")
            code = await second.end()

    assert (told["address"], code) == (f"127.0.0.1:{port}", 1)
