"""Terminates TLS for a server that cannot reload its certificates, such as Triton.

`python -m tandem.chassis.tls_proxy` terminates TLS at one port and forwards the bytes to a server
on loopback. Triton reads certificates only at start; this process reads them at each handshake, as
our services do, so a rotation needs no restart and ends no connection.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import tandem.chassis.telemetry.plain_structlog  # noqa: F401
from tandem.chassis.settings import SettingsError, load, setting
from tandem.chassis.telemetry.log import get_logger
from tandem.chassis.tls import Identity, ServerContexts, TlsSettings

log = get_logger()

_PREFIX = "TLSPROXY_"
_HANDSHAKE_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_CHUNK_BYTES = 256 * 1024
# The callers are our own services, with a few connections each.
_MAX_CONNECTION_COUNT = 256
# The pause after accept fails, for example with too many open files.
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxySettings:
    """Configures the proxy's addresses; TLS_… sets its certificates."""

    address: str = setting("host:port to listen on, with TLS")
    target_address: str = setting("host:port of the server, in plain text on loopback")


class TlsProxy:
    """Forwards bytes between TLS clients and one plain-text server."""

    def __init__(self, identity: Identity, host: str, port: int, target: tuple[str, int]) -> None:
        """`port` 0 takes a free port."""
        self._identity = identity
        self._host, self._port = host, port
        self._target = target
        self._listening: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Accepted sockets without a transport yet.
        self._shaking_hands: set[socket.socket] = set()
        self._contexts = ServerContexts(identity)

    @property
    def port(self) -> int:
        """Returns the port; raises RuntimeError before `start`."""
        if self._listening is None:
            raise RuntimeError("the proxy was not started")
        return int(self._listening.getsockname()[1])

    async def start(self) -> None:
        """Starts listening. Raises OSError if the address is not available."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listening = socket.create_server(
            (self._host, self._port), family=family, backlog=_MAX_CONNECTION_COUNT
        )
        self._listening.setblocking(False)
        self._accept_when_ready(self._listening)

    async def close(self) -> None:
        """Stops listening and ends every connection."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
        if self._pause is not None:
            self._pause.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports close their sockets in the loop's next turn.
        await asyncio.sleep(0)
        # Also for tasks that were cancelled before they began.
        for accepted in self._shaking_hands:
            accepted.close()
        self._shaking_hands.clear()
        if self._listening is not None:
            self._listening.close()

    def _keep(self, work: Any) -> None:  # noqa: ANN401 (a coroutine)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept_when_ready(self, listening: socket.socket) -> None:
        # A task that awaits sock_accept would lose a connection that comes as it is cancelled.
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except BlockingIOError:  # the caller has gone again
            return
        except OSError as error:
            log.warning("connection not accepted", cause=error.strerror)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            self._pause = loop.call_later(_PAUSE_SECONDS, self._accept_when_ready, listening)
            return
        accepted.setblocking(False)
        if len(self._tasks) >= _MAX_CONNECTION_COUNT:
            accepted.close()
            return
        self._shaking_hands.add(accepted)
        self._keep(self._serve(accepted))

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            caller = await self._shake_hands(accepted)
            self._shaking_hands.discard(accepted)
        except (OSError, TimeoutError) as error:
            self._shaking_hands.discard(accepted)
            accepted.close()
            # Also for a probe that only connects.
            log.debug("handshake failed", cause=type(error).__name__)
            return
        async with _closing(caller.writer):
            if not self._is_let_in(caller.writer):
                log.warning("caller is not among TLS_PEER_NAMES")
                return
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(*self._target)
            except (OSError, TimeoutError) as error:
                log.warning("the server does not answer", cause=type(error).__name__)
                return
            async with _closing(writer):
                await _pass_both_ways(caller, _End(reader, writer))

    async def _shake_hands(self, accepted: socket.socket) -> "_End":
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Notices a peer that vanished, which gRPC's keepalive cannot do through a proxy.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=self._contexts.current(),
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
        )
        return _End(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def _is_let_in(self, writer: asyncio.StreamWriter) -> bool:
        names = self._identity.peer_names
        if not names:
            return True
        shown = writer.get_extra_info("ssl_object").getpeercert() or {}
        return any(kind == "DNS" and name in names for kind, name in _names(shown))


@dataclass(frozen=True, slots=True)
class _End:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def _names(certificate: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(certificate.get("subjectAltName", ()))


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Closes a connection; written bytes still go out if the peer reads them soon."""
    try:
        yield
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await writer.wait_closed()
    finally:
        # A peer that does not end TLS would hold the socket for half a minute.
        writer.transport.abort()


async def _pass_both_ways(one: _End, other: _End) -> None:
    """Returns when either side has closed or failed; gRPC never half-closes a connection."""
    ways = [
        asyncio.ensure_future(_pass(one.reader, other.writer)),
        asyncio.ensure_future(_pass(other.reader, one.writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()


async def main(identity: Identity, settings: ProxySettings) -> None:
    """Serves until SIGTERM or SIGINT."""
    host, port = _host_and_port(settings.address)
    proxy = TlsProxy(identity, host, port, _host_and_port(settings.target_address))
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await proxy.start()
    log.info("serving", address=settings.address)
    await stopped.wait()
    await proxy.close()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError(f"{address!r} is not an address: write host:port")
    return host.strip("[]"), int(port)


def _main_or_exit() -> None:
    try:
        identity = Identity.of(load(TlsSettings, "TLS_", os.environ))
        if identity is None:
            raise SettingsError("the proxy needs TLS_CERTIFICATE_FILE and its companions")
        settings = load(ProxySettings, _PREFIX, os.environ)
        asyncio.run(main(identity, settings))
    except (SettingsError, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    _main_or_exit()
