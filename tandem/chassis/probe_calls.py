"""Holds the calls that need no token, of health and reflection, in a limited number of places.

gRPC's clients watch the health of every server that they call, over the same connection and without
a token. So strangers' calls may take all places, and must keep no client out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import grpc

from tandem.chassis.crowd import Crowd
from tandem.chassis.places import peer_host
from tandem.chassis.tls import certificate_names

_STRANGE, _KNOWN, _SENDING = range(3)


class ProbeCalls:
    """The open health and reflection calls, each of which may be displaced by a newer one.

    Those of known connections go last: of those with a certificate, and those on which a call with
    an accepted token came.
    """

    def __init__(self, max_count: int) -> None:
        self._crowd = Crowd[ProbeCall](max_count)
        self._by_connection: dict[str, set[ProbeCall]] = {}

    @asynccontextmanager
    async def held(self, context: grpc.aio.ServicerContext) -> AsyncIterator[ProbeCall]:
        """Holds a place while the body runs.

        A call that is displaced, or finds only calls that cannot be, ends with UNIMPLEMENTED. On
        that gRPC's clients consider the server healthy and stop watching it; on any other status
        they would consider it down.
        """
        call: ProbeCall | None = None
        try:
            async with asyncio.timeout(None) as stay:
                host, connection = peer_host(context), str(context.peer())
                self._make_room(host)
                rank = _KNOWN if certificate_names(context) else _STRANGE
                call = ProbeCall(self._crowd, stay, rank)
                self._crowd.add(call, host, rank)
                of_connection = self._by_connection.setdefault(connection, set())
                of_connection.add(call)
                try:
                    yield call
                finally:
                    self._crowd.remove(call)
                    of_connection.discard(call)
                    if not of_connection:
                        self._by_connection.pop(connection, None)
        except TimeoutError:
            if call is not None and not call.is_displaced:
                raise
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, "there are too many health and reflection calls"
            )

    def note_known(self, context: grpc.aio.ServicerContext) -> None:
        """Notes that a call on the same connection had an accepted token."""
        if self._by_connection:
            for each in self._by_connection.get(str(context.peer()), ()):
                each.note_known()

    def _make_room(self, host: str) -> None:
        """Displaces a call if there is no place; raises TimeoutError if none can be."""
        displaced = self._crowd.least_needed(host)
        if displaced is not None:
            if self._crowd.rank(displaced) == _SENDING:
                raise TimeoutError
            displaced.end()


@dataclass(eq=False, slots=True)
class ProbeCall:
    """One call that holds a place."""

    crowd: Crowd[ProbeCall]
    stay: asyncio.Timeout
    rank: int
    is_displaced: bool = False

    def end(self) -> None:
        """Takes the place, and ends the call by TimeoutError."""
        self.is_displaced = True
        self.crowd.remove(self)
        self.stay.reschedule(0.0)

    def note_known(self) -> None:
        """Notes that the call's connection is known."""
        self.rank = _KNOWN
        if not self.is_displaced:
            self.crowd.set_rank(self, max(_KNOWN, self.crowd.rank(self)))

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Runs the sending of an answer, which must not be displaced: no status could follow it."""
        if self.is_displaced:
            raise TimeoutError
        self.crowd.set_rank(self, _SENDING)
        try:
            yield
        finally:
            self.crowd.set_rank(self, self.rank)
