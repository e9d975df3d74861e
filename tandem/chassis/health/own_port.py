"""Checks whether a service's own gRPC port answers, as a client would.

It does not use gRPC's client: the check runs while the event loop may be stuck, it must end in
time, and the process's certificate need not name the loopback address. It opens a connection, sends
one health check for LIVENESS in HTTP/2 frames, and accepts any answer.
"""

import enum
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable

from grpc_health.v1 import health_pb2

from tandem.chassis.health.health import LIVENESS
from tandem.chassis.settings import SettingsError
from tandem.chassis.tls import Identity

_TIMEOUT_SECONDS = 1.5
# One answer serves all checks within a second, so probes and strangers cost one call a second.
_KEPT_SECONDS = 1.0

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 1, 4
_FRAME_HEADER_BYTES = 9


class PortState(enum.Enum):
    """The result of a check."""

    ANSWERED = "answered"
    SILENT = "silent"
    """A server listens but does not answer in time: it is busy or stuck."""
    CLOSED = "closed"
    """Nothing listens, or the connection is closed: there is no server."""


class OwnPort:
    """Checks one address. Thread-safe; one thread checks at a time."""

    def __init__(
        self,
        address: str,
        identity: Identity | None = None,
        *,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address` is where the service listens, with its actual port."""
        host, _, port = address.rpartition(":")
        self._target = (_reachable(host.strip("[]")), int(port))
        self._identity = identity
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._asking = threading.Lock()
        self._state = PortState.SILENT
        self._state_time = clock() - _KEPT_SECONDS
        self._answer_time = clock()

    def state(self) -> PortState:
        """Returns the state of the port, at most a second old; takes at most about a second."""
        with self._asking:
            if self._clock() - self._state_time >= _KEPT_SECONDS:
                self._state = self._ask()
                self._state_time = self._clock()
                if self._state is PortState.ANSWERED:
                    self._answer_time = self._state_time
            return self._state

    def has_answered_within(self, seconds: float) -> bool:
        """Checks, and returns whether the last answer is younger. False if nothing listens."""
        state = self.state()
        return state is not PortState.CLOSED and self._clock() - self._answer_time < seconds

    def _ask(self) -> PortState:
        end_time = time.monotonic() + self._timeout_seconds
        try:
            with socket.create_connection(self._target, timeout=self._timeout_seconds) as plain:
                if self._identity is None:
                    return _checked(plain, "http", end_time)
                with self._identity.caller_context().wrap_socket(plain) as wrapped:
                    return _checked(wrapped, "https", end_time)
        except TimeoutError:
            return PortState.SILENT
        except SettingsError:
            # Half-written files, as in a rotation: the server still uses the previous ones.
            return PortState.SILENT
        except ssl.SSLError as error:
            # The server rejected this certificate, which is made for serving, not for clients.
            # So we cannot see whether it answers calls, only that it is there.
            return PortState.ANSWERED if "ALERT" in str(error) else PortState.CLOSED
        except OSError:
            return PortState.CLOSED


def _checked(connection: socket.socket, scheme: str, end_time: float) -> PortState:
    """Returns ANSWERED once anything arrives on the call's stream."""
    message = health_pb2.HealthCheckRequest(service=LIVENESS).SerializeToString()
    headers = {
        b":method": b"POST",
        b":scheme": scheme.encode(),
        b":path": b"/grpc.health.v1.Health/Check",
        b":authority": b"localhost",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    connection.sendall(
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, b"".join(map(_literal, headers, headers.values())))
        + _frame(_DATA, _END_STREAM, 1, struct.pack("!BI", 0, len(message)) + message)
    )
    received = b""
    while True:
        while len(received) >= _FRAME_HEADER_BYTES:
            size = int.from_bytes(received[:3], "big")
            if len(received) < _FRAME_HEADER_BYTES + size:
                break
            kind, stream = received[3], int.from_bytes(received[5:9], "big")
            if kind == _GOAWAY:
                return PortState.CLOSED
            if stream == 1 and kind in (_DATA, _HEADERS):
                return PortState.ANSWERED
            if stream == 1 and kind == _RESET:
                return PortState.SILENT
            received = received[_FRAME_HEADER_BYTES + size :]
        remaining_seconds = end_time - time.monotonic()
        if remaining_seconds <= 0:
            return PortState.SILENT
        connection.settimeout(remaining_seconds)
        part = connection.recv(65_536)
        if not part:
            return PortState.CLOSED
        received += part


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Returns a short header as an HPACK literal without indexing."""
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def _reachable(host: str) -> str:
    """Returns the local address of a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
