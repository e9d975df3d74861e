"""Runs a service's process: bind, warm up, serve, drain, exit.

A service's `__main__` has this shape:

    async def main() -> None:
        settings = load_or_exit(IndexSettings, "INDEX_")
        ...
        await serve(settings, service, identity=identity, guard=guard)

    asyncio.run(main())
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from tandem.chassis.access.exposure import warn_of_exposure
from tandem.chassis.access.guard import Guard
from tandem.chassis.calls.channels import SERVER_OPTIONS
from tandem.chassis.calls.credentials import server_credentials, server_options
from tandem.chassis.capacity.admission import DEFAULT_LIMITS, AdmissionLimits
from tandem.chassis.health.health import Health
from tandem.chassis.health.metrics_server import STILL_SECONDS, Heartbeat
from tandem.chassis.health.own_port import OwnPort, PortState
from tandem.chassis.interceptors import interceptors
from tandem.chassis.interceptors.handlers import InterceptorChain
from tandem.chassis.process.memory import Trimmer, set_long_lived_aside
from tandem.chassis.serve.direct_channel import DirectChannel
from tandem.chassis.serve.grpc_server import GrpcServer
from tandem.chassis.serve.process import host_of, open_metrics_port, prepare
from tandem.chassis.serve.service import Service, ServiceSettings
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.tls import Identity

log = get_logger()

# Interval of the check whether the gRPC server has ended.
_END_SECONDS = 1.0


class AttachedServer(Protocol):
    """A server of another protocol that listens while the service does, and drains before it."""

    def bind(self, channel: DirectChannel) -> None:
        """Takes its port, and the channel to the service; exits 1 if the port is taken."""

    def start(self) -> None:
        """Begins to serve."""

    async def ended(self) -> None:
        """Returns, or raises, once it has ended; a cancelled wait leaves it running."""

    async def drain(self) -> None:
        """Takes no more calls, and returns when those in flight have ended."""


async def serve(
    settings: ServiceSettings,
    service: Service,
    *,
    identity: Identity | None = None,
    guard: Guard | None = None,
    attached: AttachedServer | None = None,
    before_drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains and returns, so that the process exits 0.

    Health is NOT_SERVING until `service.warm` has returned (see `Health.watch`), and then follows
    `service.ready`, a canary that runs every second. The drain calls `before_drain`, sets health to
    NOT_SERVING, waits `drain_notice_seconds`, gives calls in flight `grace_seconds` before it
    cancels them, and closes the service. With an `identity`, callers must present a certificate;
    the metrics port, which has the probes too, is plain HTTP on the same host. Without a `guard`,
    every caller is admitted. A server that is `attached` drains before the gRPC server.

    Exits 1 if a port is not available, and at once if a server ends by itself; raises what
    `warm` raises other than `TandemError`.
    """
    guard = guard or Guard()
    process = prepare(service.name)
    try:
        health = Health(service.name, service.service_names)
        server = await make_server(
            service.name,
            health,
            service.register,
            service.service_names,
            settings.admission_limits(),
            server_options(SERVER_OPTIONS, identity),
            guard,
            is_reflected=process.optional.reflection,
        )
        try:
            port = bind(server, settings.address, identity)
        except RuntimeError as error:
            log.error("cannot listen", address=settings.address, cause=str(error))
            raise SystemExit(1) from error
        if attached is not None:
            attached.bind(server.direct_channel(guard.peer_names))
        heartbeat = Heartbeat()
        own_port = OwnPort(f"{host_of(settings.address)}:{port}", identity)
        probes = _Probes(health, heartbeat, own_port)
        metrics_server = open_metrics_port(
            service.name, settings, process.registry, probes.is_live, probes.is_ready
        )
        lasting = [asyncio.create_task(each) for each in (heartbeat.beat(), Trimmer().watch())]

        async def warm() -> None:
            await service.warm()
            set_long_lived_aside()

        try:
            await server.start()
            log.info("listening", address=settings.address, port=port)
            warn_of_exposure(settings.address, service.service_names, identity, guard)
            if attached is not None:
                attached.start()
            watching = health.watch(warm, service.ready)
            await _until_stopped(process.stopping, watching, server, attached)
        finally:
            if before_drain is not None:
                await before_drain()
            health.leave()
            log.info("draining")
            await asyncio.sleep(settings.drain_notice_seconds)
            if attached is not None:
                await attached.drain()
            health.end_watches()  # Otherwise they hold the server for its whole grace period.
            await server.stop(settings.grace_seconds)
            for task in lasting:
                task.cancel()
            metrics_server.close()
    finally:
        await service.close()
        await asyncio.to_thread(process.tracing.close)
    log.info("stopped")


@dataclass(frozen=True, slots=True)
class _Probes:
    """Answers /live and /ready."""

    health: Health
    heartbeat: Heartbeat
    own_port: OwnPort

    def is_live(self) -> bool:
        """Returns whether the loop turns and the port answers."""
        # A draining service closes its port first; that is no reason to kill it.
        return self.heartbeat.is_beating() and (
            self.health.has_left or self.own_port.has_answered_within(STILL_SECONDS)
        )

    def is_ready(self) -> bool:
        """Returns whether calls are answered."""
        return self.health.is_serving() and self.own_port.state() is PortState.ANSWERED


async def make_server(
    name: str,
    health: Health,
    register: Callable[[grpc.aio.Server], None],
    service_names: Sequence[str],
    limits: AdmissionLimits = DEFAULT_LIMITS,
    options: Sequence[tuple[str, Any]] = SERVER_OPTIONS,
    guard: Guard | None = None,
    *,
    is_reflected: bool = True,
) -> GrpcServer:
    """Returns a server with our interceptors, health and optionally reflection.

    It is not bound or started yet.
    """
    chain = InterceptorChain(interceptors(name, limits, guard))
    server = GrpcServer(chain, options)
    health.register(server)
    register(server)
    health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
    names = (*service_names, health_name, reflection.SERVICE_NAME)
    if is_reflected:
        reflection.enable_server_reflection(names, server)
    return server


def bind(server: grpc.aio.Server, address: str, identity: Identity | None) -> int:
    """Returns the port that the server will listen on; raises RuntimeError if it is taken."""
    if identity is None:
        return int(server.add_insecure_port(address))
    return int(server.add_secure_port(address, server_credentials(identity)))


async def _until_stopped(
    stopping: asyncio.Event,
    watching: Awaitable[None],
    server: grpc.aio.Server,
    attached: AttachedServer | None,
) -> None:
    watch = asyncio.ensure_future(watching)
    stop = asyncio.ensure_future(stopping.wait())
    ended = [asyncio.ensure_future(_end_of(server))]
    if attached is not None:
        ended.append(asyncio.ensure_future(attached.ended()))
    tasks = {watch, stop, *ended}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not any(each.done() for each in ended):
            # It is warm without a canary, or failed permanently: then this raises.
            await watch
            await asyncio.wait({stop, *ended}, return_when=asyncio.FIRST_COMPLETED)
        for each, name in zip(ended, ("gRPC", "attached"), strict=False):
            if each.done():
                leave_at_once(each, name)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end_of(server: grpc.aio.Server) -> None:
    """Returns or raises once the server has ended."""
    # Poll with a timeout: cancelling a wait without one would cancel the server's own wait for its
    # calls. And if an error ended the server, open calls hide that until the timeout.
    while await server.wait_for_termination(timeout=_END_SECONDS):
        pass


def leave_at_once(ended: asyncio.Future[None], name: str) -> NoReturn:
    """Ends the process at once, so that its supervisor starts another.

    It drains and closes nothing. If an error ended the server, gRPC has written into freed memory
    (docs/decisions/0037), and this process must not write into a store any more. A store survives
    this at any moment.
    """
    fault = None if ended.cancelled() else ended.exception()
    log.error(f"the {name} server has ended; exiting", exc_info=fault)
    sys.stderr.flush()
    os._exit(1)
