"""The gateway in the orchestrator's process, from its start to its end, as an operator sees it."""

from __future__ import annotations

import asyncio
import signal

import grpc
import httpx2

from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.gateway_svc.own_process import gateway_process
from tests.support.gateway_svc.running import SEARCH

ATTACHED = "tests.support.gateway_svc.attached_service"


async def test_http_drains_before_grpc_ends() -> None:
    async with (
        gateway_process("in-process", module=ATTACHED, GATEWAY_GRACE_SECONDS="60") as service,
        httpx2.AsyncClient(trust_env=False, timeout=60.0) as client,
    ):
        grpc_port = (await service.event("listening"))["port"]
        listening = await service.event("listening")
        url = f"http://127.0.0.1:{listening['port']}{SEARCH}"
        assert listening["service"] == "gateway"
        # One that does not watch its health, which says at once that it is about to end.
        async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            stub = SearchServiceStub(channel)
            await stub.SearchItems(pb.SearchItemsRequest(), timeout=60)
            searching = asyncio.create_task(client.post(url, json={"indexId": "held"}))
            await service.event("held")
            service.process.send_signal(signal.SIGTERM)
            await service.event("draining")
            await stub.SearchItems(pb.SearchItemsRequest(index_id="release"), timeout=60)
            response = await searching
        code = await service.end()

    served = [each for each in service.events if each["event"] == "call served"]
    assert [each["service"] for each in served][-2:] == ["orchestrator", "gateway"]
    assert (response.status_code, code) == (200, 0)
    assert response.json() == {"modelFingerprint": "f1"}


async def test_the_gateways_own_process_has_no_orchestrator_in_it() -> None:
    async with gateway_process("in-process") as service:
        assert service.process.stderr is not None
        said = (await service.process.stderr.read()).decode()
        code = await service.process.wait()

    assert code == 1
    assert "gateway_svc: python -m merged_svc serves HTTP in-process" in said
