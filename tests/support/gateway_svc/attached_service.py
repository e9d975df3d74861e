"""An orchestrator with an attached gateway: `python -m tests.support.gateway_svc.attached_service`.

A search of the index "held" waits, and logs so, until one of the index "release" is answered.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

from gateway_svc.serving import Gateway
from gateway_svc.settings import GatewaySettings
from tandem.chassis.access.guard import Guard
from tandem.chassis.serve.server import serve
from tandem.chassis.serve.service import Service, ServiceSettings
from tandem.chassis.settings import load
from tandem.chassis.telemetry.log import get_logger
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server
from tests.support.chassis.scripted_service import SEARCH_SERVICE, ScriptedSearch

log = get_logger()


async def main() -> None:
    """Serves until a signal comes."""
    released = asyncio.Event()

    async def search(request: pb.SearchItemsRequest, _: Any) -> pb.SearchItemsResponse:
        if request.index_id == "held":
            log.info("held")
            await released.wait()
        if request.index_id == "release":
            released.set()
        return pb.SearchItemsResponse(model_fingerprint="f1")

    async def nothing() -> None:
        pass

    await serve(
        ServiceSettings(
            address="127.0.0.1:0", metrics_port=0, drain_notice_seconds=0.0, grace_seconds=20.0
        ),
        Service(
            name="orchestrator",
            register=partial(add_SearchServiceServicer_to_server, ScriptedSearch(search)),
            service_names=[SEARCH_SERVICE],
            warm=nothing,
            close=nothing,
        ),
        attached=Gateway(load(GatewaySettings, "GATEWAY_", os.environ), None, Guard()),
    )


if __name__ == "__main__":
    asyncio.run(main())
