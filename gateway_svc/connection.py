"""One HTTP connection, which a slow or silent client cannot hold.

uvicorn limits the time between two requests and nothing else: half a request line, or an answer
that the client does not read, would hold a connection for ever.
"""

import asyncio
import socket
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gateway_svc.faults import HttpRefusal, head_too_large, problem
from tandem.chassis.calls.credentials import MAX_CONNECTION_AGE_SECONDS
from tandem.chassis.capacity.crowd import Crowd
from tandem.chassis.telemetry.request_id import bind_request_id

_CN = "commonName"
_IDLE, _ANSWERED = range(2)


@dataclass(slots=True)
class ConnectionLimits:
    """Limits on connections, and those that are open. For one server."""

    max_count: int
    max_count_by_host: int
    head_seconds: float
    idle_seconds: float
    open: "Crowd[LimitedConnection]" = field(init=False)
    """Those that wait for a request go first, the one that has waited longest."""

    def __post_init__(self) -> None:
        """Starts without a connection."""
        self.open = Crowd(self.max_count, self.max_count_by_host)


class LimitedConnection(H11Protocol):
    """Ends if a request's head does not arrive in time, and is aborted rather than flushed."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        limits: ConnectionLimits,
    ) -> None:
        # Requests find their connection in their state.
        super().__init__(config, server_state, {"connection": self}, asyncio.get_running_loop())
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._made_time = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the clock of the first request.

        At the limits it closes the connection that has been idle for longest, or this one if all
        are being answered.
        """
        super().connection_made(cast(asyncio.Transport, transport))
        # asyncio sets it only for sockets that name their protocol, and one of a server's does not.
        # Without it an answer's body waits 40 ms for the acknowledgement of its head.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host = self.client[0] if self.client else ""
        if (idle := self._limits.open.least_needed(host)) is not None:
            if self._limits.open.members[idle][0] == _ANSWERED:
                self.abort()
                return
            self._limits.open.remove(idle)
            idle.abort()
        self._limits.open.add(self, host, _IDLE)
        self._await_head(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._stop_clock()
        self._limits.open.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads; a request that has begun has a time to arrive."""
        is_first_of_head = self._is_between_requests() and self._head_timer is None
        super().data_received(data)
        if not self._is_between_requests():
            self._limits.open.set_rank(self, _ANSWERED)
            self._stop_clock()
        elif is_first_of_head:
            self._await_head(self._limits.head_seconds)

    def on_response_complete(self) -> None:
        """Reads what is left of a refused body only for as long as a head may take.

        Closing at once would discard the answer of a client that is still sending.
        """
        super().on_response_complete()
        if self._is_between_requests():
            self._limits.open.set_rank(self, _IDLE)
            if self.conn.their_state is h11.SEND_BODY:
                self._await_head(self._limits.head_seconds)

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are not a request, with a problem like any other."""
        bind_request_id(None)
        refusal = self._refusal()
        answer = problem(refusal)
        headers = [*answer.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(
                status_code=refusal.status, headers=headers, reason=refusal.status.phrase.encode()
            ),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def certificate_names(self) -> set[str]:
        """Returns the names in the caller's certificate; none without one."""
        shown = self.transport.get_extra_info("peercert") or {}
        common = {value for each in shown.get("subject", ()) for name, value in each if name == _CN}
        return common | {value for _, value in shown.get("subjectAltName", ())}

    @property
    def must_shake_hands_again(self) -> bool:
        """Returns whether it is too old, because only handshakes check certificates."""
        is_secured = self.transport.get_extra_info("sslcontext") is not None
        return is_secured and time.monotonic() - self._made_time >= MAX_CONNECTION_AGE_SECONDS

    @property
    def waits_for_caller(self) -> bool:
        """Returns whether so much is unread that a write waits."""
        return self.flow.write_paused

    def abort(self) -> None:
        """Ends the connection without sending what waits to be sent."""
        self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Aborts an idle connection, also one whose last answer was not read."""
        self.transport.abort()

    def _refusal(self) -> HttpRefusal:
        unread, _ = self.conn.trailing_data
        max_bytes = self.config.h11_max_incomplete_event_size
        if max_bytes is not None and len(unread) > max_bytes:
            return head_too_large(max_bytes)
        return HttpRefusal(
            HTTPStatus.BAD_REQUEST,
            "the bytes are not a request; send HTTP 1.1, with one host header",
        )

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self, seconds: float) -> None:
        self._stop_clock()
        self._head_timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
