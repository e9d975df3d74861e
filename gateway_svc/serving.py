"""Runs the gateway: bind, warm up, serve, drain, in a process of its own or the orchestrator's."""

import asyncio
from contextlib import suppress

import grpc

from gateway_svc.admission import SERVICE
from gateway_svc.app import GatewayApp
from gateway_svc.http_server import HttpServer
from gateway_svc.settings import GatewaySettings
from gateway_svc.upstream import SERVICE_NAMES, Upstream
from tandem.chassis.access.exposure import warn_of_exposure
from tandem.chassis.access.guard import Guard
from tandem.chassis.health.health import WARM_RETRY_SECONDS, Health, Probe
from tandem.chassis.health.metrics_server import Heartbeat
from tandem.chassis.process.memory import Trimmer
from tandem.chassis.serve.direct_channel import DirectChannel
from tandem.chassis.serve.process import open_metrics_port, prepare
from tandem.chassis.serve.server import leave_at_once
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.telemetry.metrics import note_build
from tandem.chassis.tls import Identity
from tandem.errors import ServiceUnavailable

log = get_logger()


class Gateway:
    """The HTTP server and its health: in a process of its own, or attached to the orchestrator."""

    def __init__(
        self,
        settings: GatewaySettings,
        identity: Identity | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._guard = guard or Guard()

    def bind(self, channel: grpc.aio.Channel | DirectChannel) -> None:
        """Takes its port, and the channel to the orchestrator; exits 1 if the port is taken."""
        self.upstream = Upstream(channel)
        self.health = Health(SERVICE, SERVICE_NAMES)
        app = GatewayApp(self.upstream, self._guard, self._settings)
        try:
            self._server = HttpServer(app, self._settings, self._identity)
        except OSError as error:
            log.error("cannot listen", address=self._settings.address, cause=str(error))
            raise SystemExit(1) from error
        note_build(SERVICE)

    def start(self, warm: Probe | None = None) -> None:
        """Begins to serve, and to follow the orchestrator's health, which `warm` waits for."""
        address = self._settings.address
        self.serving = asyncio.create_task(self._server.serve())
        watch = self.health.watch(warm or self._until_serving, self.upstream.check)
        self.watching = asyncio.create_task(watch)
        log.info("listening", service=SERVICE, address=address, port=self._server.port)
        warn_of_exposure(address, SERVICE_NAMES, self._identity, self._guard)

    async def ended(self) -> None:
        """Returns, or raises, once the server has ended; a cancelled wait leaves it running."""
        await asyncio.shield(self.serving)

    async def drain(self) -> None:
        """Takes no more requests, and returns when those in flight have been answered."""
        self.health.leave()
        self.watching.cancel()
        self._server.should_exit = True
        await self.serving

    async def _until_serving(self) -> None:
        """Waits without a log line: in its process the orchestrator says why it is not warm yet."""
        while True:
            with suppress(ServiceUnavailable):
                return await self.upstream.check()
            await asyncio.sleep(WARM_RETRY_SECONDS)


async def serve(
    settings: GatewaySettings,
    *,
    channel: grpc.aio.Channel,
    identity: Identity | None = None,
    guard: Guard | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains and returns, so that the process exits 0.

    It is ready while the orchestrator is serving. Without it, it answers every call with
    SERVICE_UNAVAILABLE. Exits 1 if a port is not available. It closes the channel.
    """
    process = prepare(SERVICE)
    gateway = Gateway(settings, identity, guard)
    try:
        gateway.bind(channel)
        heartbeat = Heartbeat()
        metrics_server = open_metrics_port(
            SERVICE, settings, process.registry, heartbeat.is_beating, gateway.health.is_serving
        )
        lasting = [asyncio.create_task(each) for each in (heartbeat.beat(), Trimmer().watch())]
        stopping = asyncio.create_task(process.stopping.wait())
        gateway.start(gateway.upstream.check)
        try:
            ends = {gateway.serving, gateway.watching, stopping}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in (gateway.serving, gateway.watching):
                if each.done():
                    leave_at_once(each, "HTTP")
        finally:
            gateway.health.leave()
            log.info("draining")
            await asyncio.sleep(settings.drain_notice_seconds)
            await gateway.drain()
            for task in (*lasting, stopping):
                task.cancel()
            metrics_server.close()
    finally:
        await channel.close()
        await asyncio.to_thread(process.tracing.close)
    log.info("stopped")
