"""The HTTP server: uvicorn with a connection of ours, and TLS that follows its files."""

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import Iterator

from uvicorn import Config, Server

from gateway_svc.app import GatewayApp
from gateway_svc.connection import LimitedConnection
from gateway_svc.settings import GatewaySettings
from tandem.chassis.tls import Identity, ServerContexts

_ALPN = "http/1.1"
_BACKLOG = 512
# asyncio takes no 0.
_LEAST_HANDSHAKE_SECONDS = 0.1


class HttpServer(Server):
    """Serves one application until `should_exit` is set; leaves signals to the process."""

    def __init__(
        self, app: GatewayApp, settings: GatewaySettings, identity: Identity | None
    ) -> None:
        """Raises OSError if the address is not available."""
        config = Config(
            app,
            http=LimitedConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(settings.idle_seconds),
            timeout_graceful_shutdown=math.ceil(settings.grace_seconds),
            h11_max_incomplete_event_size=settings.max_head_bytes,
            backlog=_BACKLOG,
        )
        # A caller can make it warn as often as it likes.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        config.load()
        if identity is not None:
            config.ssl = _followed(identity)
        super().__init__(config)
        self.listening = asyncio.Event()
        self._limits = app.limits
        self._head_seconds = max(settings.head_seconds, _LEAST_HANDSHAKE_SECONDS)
        self._socket = _listening(settings.address)
        self.port: int = self._socket.getsockname()[1]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, with a limit of the time for a TLS handshake, which uvicorn has not."""
        config = self.config
        server = await asyncio.get_running_loop().create_server(
            lambda: LimitedConnection(config, self.server_state, self._limits),
            sock=self._socket,
            ssl=config.ssl,
            ssl_handshake_timeout=self._head_seconds if config.ssl is not None else None,
            backlog=_BACKLOG,
        )
        self.servers, self.started = [server], True
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none: the process's own handler drains first."""
        yield


def _listening(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)


def _followed(identity: Identity) -> ssl.SSLContext:
    """Returns a context that hands each handshake on to one of the current files."""
    contexts = ServerContexts(identity, _ALPN)

    def hand_on(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> int | None:
        current = contexts.current()
        is_resumed = contexts.have_changed and connection.session_reused
        if is_resumed and identity.is_client_certificate_required:
            # Of TLS 1.2, whose sessions by id cannot be turned off.
            return ssl.ALERT_DESCRIPTION_UNKNOWN_CA
        connection.context = current
        return None

    first = identity.server_context(_ALPN)
    first.sni_callback = hand_on
    # A resumed session shows no certificate again, and would outlive its authority.
    first.num_tickets = 0
    first.options |= ssl.OP_NO_TICKET
    return first
