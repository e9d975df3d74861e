"""Serves a shard's operators by gRPC, where its searches need no server."""

import grpc

from tandem.chassis.access.guard import load_guard_or_exit
from tandem.chassis.calls.channels import SERVER_OPTIONS
from tandem.chassis.calls.credentials import server_options
from tandem.chassis.capacity.admission import AdmissionLimits
from tandem.chassis.health.health import Health
from tandem.chassis.serve.server import bind, make_server
from tandem.chassis.serve.service import Service
from tandem.chassis.settings import SettingsError
from tandem.chassis.tls import Identity


class OperatorsServer:
    """A server with the service's own servicers, tokens, certificates and limits."""

    def __init__(self, service: Service, health: Health, identity: Identity | None) -> None:
        self._service = service
        self._health = health
        self._identity = identity
        self._server: grpc.aio.Server | None = None

    async def open(self, address: str, limits: AdmissionLimits) -> None:
        """Listens at host:port, if there is one; raises SettingsError if it is taken."""
        if not address:
            return
        server = await make_server(
            self._service.name,
            self._health,
            self._service.register,
            self._service.service_names,
            limits,
            server_options(SERVER_OPTIONS, self._identity),
            load_guard_or_exit(self._identity),
            is_reflected=False,
        )
        try:
            bind(server, address, self._identity)
        except RuntimeError as error:
            raise SettingsError(f"cannot listen at {address}: {error}") from error
        await server.start()
        self._server = server

    async def close(self, grace_seconds: float) -> None:
        """Gives calls in flight some time, and cancels them."""
        if self._server is not None:
            self._health.end_watches()
            await self._server.stop(grace_seconds)
