"""Runs the gateway's process: bind, warm up, serve, drain, exit, as the chassis does for gRPC."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from gateway_svc.app import GatewayApp
from gateway_svc.http_server import HttpServer
from gateway_svc.methods import SERVICE_NAMES
from gateway_svc.observed import SERVICE
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import Upstream
from tandem.chassis.allocator import Trimmer
from tandem.chassis.exposure import warn_of_exposure
from tandem.chassis.guard import Guard
from tandem.chassis.health import Health
from tandem.chassis.http_door import Heartbeat
from tandem.chassis.log import get_logger
from tandem.chassis.process import open_metrics_port, prepare
from tandem.chassis.tls import Identity

log = get_logger()


async def serve(
    settings: GatewaySettings,
    *,
    upstream: Upstream,
    close: Callable[[], Awaitable[None]],
    identity: Identity | None = None,
    guard: Guard | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains and returns, so that the process exits 0.

    It is ready while the orchestrator is serving. Without it, it answers every call with
    SERVICE_UNAVAILABLE. Exits 1 if a port is not available.
    """
    process = prepare(SERVICE)
    guard = guard or Guard()
    try:
        health = Health(SERVICE, SERVICE_NAMES)
        server = listening_server(settings, upstream, identity, guard)
        heartbeat = Heartbeat()
        door = open_metrics_port(
            SERVICE, settings, process.registry, heartbeat.is_beating, health.is_serving
        )
        lasting = [asyncio.create_task(each) for each in (heartbeat.beat(), Trimmer().watch())]
        watching = asyncio.create_task(health.watch(upstream.check, upstream.check))
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(process.stopping.wait())
        log.info("listening", address=settings.address, port=server.port)
        warn_of_exposure(settings.address, SERVICE_NAMES, identity, guard)
        try:
            await asyncio.wait({serving, stopping, watching}, return_when=asyncio.FIRST_COMPLETED)
            _leave_if_ended(serving, watching)
        finally:
            health.leave()
            log.info("draining")
            await asyncio.sleep(settings.drain_notice_seconds)
            server.should_exit = True
            await serving
            for task in (*lasting, watching, stopping):
                task.cancel()
            door.close()
    finally:
        await close()
        await asyncio.to_thread(process.tracing.close)
    log.info("stopped")


def listening_server(
    settings: GatewaySettings, upstream: Upstream, identity: Identity | None, guard: Guard
) -> HttpServer:
    """Returns a server that has its port; exits 1 if it is taken."""
    try:
        return HttpServer(GatewayApp(upstream, guard, settings), settings, identity)
    except OSError as error:
        log.error("cannot listen", address=settings.address, cause=str(error))
        raise SystemExit(1) from error


def _leave_if_ended(*tasks: asyncio.Task[None]) -> None:
    """Ends the process at once if one of them has, so that its supervisor starts another."""
    for task in tasks:
        if task.done():
            fault = None if task.cancelled() else task.exception()
            log.error("the HTTP server has ended; exiting", exc_info=fault)
            sys.stderr.flush()
            os._exit(1)
