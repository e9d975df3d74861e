"""A whole service process for tests: `python -m tests.support.chassis.lone_service name=value …`.

It obeys files in its folder: `cold` keeps it from warming, `wrong` makes it unable to start,
`sick` fails its canary, `ended` has its gRPC server end by itself, `broken` by a fault at the next
call but one, `stuck` its loop stand still. It leaves `began` behind when a search begins, which
takes `index_id` seconds, and when it has closed `closed`, which says how many objects the garbage
collector leaves alone.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

import grpc

from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.serve.server import serve
from tandem.chassis.serve.service import Service, ServiceSettings
from tandem.chassis.telemetry.metrics import stage_histogram
from tandem.errors import ModelUnavailable
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server
from tests.support.chassis.scripted_service import SEARCH_SERVICE, ScriptedSearch


async def main(settings: dict[str, str]) -> None:
    """Serves until a signal comes."""
    folder = Path(settings["folder"])
    servers: list[grpc.aio.Server] = []

    def register(server: grpc.aio.Server) -> None:
        servers.append(server)
        add_SearchServiceServicer_to_server(ScriptedSearch(search), server)

    async def search(
        request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        (folder / "began").touch()
        with stage_histogram("lone").labels("sleep").time():
            await asyncio.sleep(float(request.index_id or 0))
        return pb.SearchItemsResponse()

    async def warm() -> None:
        if (folder / "wrong").exists():
            raise ValueError("another shard's volume")
        if (folder / "cold").exists():
            raise ModelUnavailable(model="lone", why="it is cold")

    async def ready() -> None:
        if (folder / "ended").exists():
            await servers[0].stop(None)
        if (folder / "broken").exists():
            servers[0]._server._make_request_call_future = None
        while (folder / "stuck").exists():
            time.sleep(0.05)  # noqa: ASYNC251 (that is the fault)
        if (folder / "sick").exists():
            raise ModelUnavailable(model="lone", why="it is sick")

    async def close() -> None:
        (folder / "closed").write_text(str(gc.get_freeze_count()))

    await serve(
        ServiceSettings(
            address=f"127.0.0.1:{settings['port']}",
            metrics_port=int(settings["metrics_port"]),
            drain_notice_seconds=float(settings.get("drain_notice_seconds", "0")),
            grace_seconds=float(settings.get("grace_seconds", "5")),
        ),
        Service(
            name="lone",
            register=register,
            service_names=[SEARCH_SERVICE, *settings.get("also", "").split()],
            warm=warm,
            ready=ready,
            close=close,
        ),
        guard=load_guard_or_exit(None),
    )


if __name__ == "__main__":
    asyncio.run(main(dict(argument.split("=", 1) for argument in sys.argv[1:])))
