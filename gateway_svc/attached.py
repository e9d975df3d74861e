"""Serves HTTP from the orchestrator's process, which it calls directly."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gateway_svc.http_server import HttpServer
from gateway_svc.methods import SERVICE_NAMES
from gateway_svc.observed import SERVICE
from gateway_svc.serving import listening_server
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import Upstream
from tandem.chassis.direct_channel import DirectChannel
from tandem.chassis.exposure import warn_of_exposure
from tandem.chassis.guard import Guard
from tandem.chassis.health import WARM_RETRY_SECONDS, Health
from tandem.chassis.log import get_logger
from tandem.chassis.metrics import note_build
from tandem.chassis.tls import Identity
from tandem.errors import ServiceUnavailable

log = get_logger()


class AttachedGateway:
    """The gateway as a server that is attached to the orchestrator's."""

    def __init__(self, settings: GatewaySettings, identity: Identity | None, guard: Guard) -> None:
        self._settings = settings
        self._identity = identity
        self._guard = guard

    def bind(self, channel: DirectChannel) -> None:
        """Takes its port; exits 1 if it is taken."""
        self._upstream = Upstream(channel)
        self._health = Health(SERVICE, SERVICE_NAMES)
        self._server: HttpServer = listening_server(
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
