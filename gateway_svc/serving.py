"""Runs the gateway: bind, warm up, serve, drain, in a process of its own or the orchestrator's."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gateway_svc.admission import SERVICE
from gateway_svc.app import GatewayApp
from gateway_svc.http_server import HttpServer
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import SERVICE_NAMES, Upstream
from tandem.chassis.access.exposure import warn_of_exposure
from tandem.chassis.access.guard import Guard
from tandem.chassis.health.health import WARM_RETRY_SECONDS, Health
from tandem.chassis.health.metrics_server import Heartbeat
from tandem.chassis.process.memory import Trimmer
from tandem.chassis.serve.direct_channel import DirectChannel
from tandem.chassis.serve.process import open_metrics_port, prepare
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.metrics import note_build
from tandem.chassis.tls import Identity
from tandem.errors import ServiceUnavailable

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
        server = _listening_server(settings, upstream, identity, guard)
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


class AttachedGateway:
    """The gateway in the orchestrator's process, which it calls directly."""

    def __init__(self, settings: GatewaySettings, identity: Identity | None, guard: Guard) -> None:
        self._settings = settings
        self._identity = identity
        self._guard = guard

    def bind(self, channel: DirectChannel) -> None:
        """Takes its port; exits 1 if it is taken."""
        self._upstream = Upstream(channel)
        self._health = Health(SERVICE, SERVICE_NAMES)
        self._server: HttpServer = _listening_server(
            self._settings, self._upstream, self._identity, self._guard
        )
        note_build(SERVICE)

    def start(self) -> None:
        """Begins to serve, and to follow the orchestrator's health."""
        address = self._settings.address
        self._serving = asyncio.create_task(self._server.serve())
        watch = self._health.watch(self._until_serving, self._upstream.check)
        self._watching = asyncio.create_task(watch)
        log.info("listening", service=SERVICE, address=address, port=self._server.port)
        warn_of_exposure(address, SERVICE_NAMES, self._identity, self._guard)

    async def ended(self) -> None:
        """Returns, or raises, once the server has ended; a cancelled wait leaves it running."""
        await asyncio.shield(self._serving)

    async def drain(self) -> None:
        """Takes no more requests, and returns when those in flight have been answered."""
        self._health.leave()
        self._watching.cancel()
        self._server.should_exit = True
        await self._serving

    async def _until_serving(self) -> None:
        """Waits without a log line: the orchestrator's own health says why it is not warm yet."""
        while True:
            with suppress(ServiceUnavailable):
                return await self._upstream.check()
            await asyncio.sleep(WARM_RETRY_SECONDS)


def _listening_server(
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
