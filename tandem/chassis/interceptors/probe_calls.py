"""Holds the calls that need no token, of health and reflection, in a limited number of places.

gRPC's clients watch the health of every server that they call, over the same connection and without
a token. So strangers' calls may take all places, and must keep no client out.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc

from tandem.chassis.capacity.crowd import Crowd
from tandem.chassis.interceptors.peer import certificate_names, peer_host

# Ranks: of connections with a certificate, or on which a call with an accepted token came, are
# known. No status can follow an answer whose sending is cancelled, so that is not displaced.
_STRANGE, _KNOWN, _SENDING = range(3)


class ProbeCalls:
    """The open health and reflection calls, each of which may be displaced by a newer one."""

    def __init__(self, max_count: int) -> None:
        self._crowd = Crowd[asyncio.Timeout](max_count)
        self._by_connection: dict[str, dict[asyncio.Timeout, None]] = {}

    @asynccontextmanager
    async def held(self, context: grpc.aio.ServicerContext) -> AsyncIterator[asyncio.Timeout]:
        """Holds a place while the body runs.

        A call that is displaced, finds only calls that cannot be, or has a body that raises
        TimeoutError, ends with UNIMPLEMENTED. On that gRPC's clients consider the server healthy
        and stop watching it; on any other status they would consider it down.
        """
        host, connection = peer_host(context), str(context.peer())
        try:
            async with asyncio.timeout(None) as call:
                if displaced := self._crowd.least_needed(host):
                    if self._crowd.members[displaced][0] == _SENDING:
                        raise TimeoutError
                    self._crowd.remove(displaced)
                    displaced.reschedule(0.0)
                self._crowd.add(call, host, _KNOWN if certificate_names(context) else _STRANGE)
                self._by_connection.setdefault(connection, {})[call] = None
                try:
                    yield call
                finally:
                    self._crowd.remove(call)
                    del self._by_connection[connection][call]
                    if not self._by_connection[connection]:
                        del self._by_connection[connection]
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED,
                "there are too many health and reflection calls, or this one's request is too slow",
            )

    def note_known(self, context: grpc.aio.ServicerContext) -> None:
        """Notes that a call on the same connection had an accepted token."""
        for call in self._by_connection.get(str(context.peer()), ()):
            if self._crowd.members.get(call, (_SENDING,))[0] == _STRANGE:
                self._crowd.set_rank(call, _KNOWN)

    @contextmanager
    def sending(self, call: asyncio.Timeout) -> Iterator[None]:
        """Runs the sending of an answer; raises TimeoutError if the call is displaced."""
        if call not in self._crowd.members:
            raise TimeoutError
        rank = self._crowd.members[call][0]
        self._crowd.set_rank(call, _SENDING)
        try:
            yield
        finally:
            self._crowd.set_rank(call, rank)
