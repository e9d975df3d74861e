"""Opens the connections of `Client` and `AsyncClient`, and closes them."""

import asyncio
from contextlib import nullcontext

import grpc

from tandem.client.access import Access
from tandem.contract.address import Address
from tandem.v1.content_service_pb2_grpc import ContentServiceStub
from tandem.v1.model_service_pb2_grpc import ModelServiceStub
from tandem.v1.search_service_pb2_grpc import SearchServiceStub

# Half of what a server takes on one connection: it counts calls until it has cleaned up after them,
# and refuses more.
_MAX_CALL_COUNT = 128


class _Stubs:
    def __init__(self, channel: grpc.Channel | grpc.aio.Channel) -> None:
        self.search = SearchServiceStub(channel)
        self.content = ContentServiceStub(channel)
        self.model = ModelServiceStub(channel)


class Connection(_Stubs):
    """The one connection of a `Client`, with as many calls as there are threads."""

    places = nullcontext()

    def __init__(self, access: Access, address: str) -> None:
        self._channel = access.open_channel(address)
        super().__init__(self._channel)

    def current(self) -> "Connection":
        """Returns itself; `AsyncClient` has several."""
        return self

    def close(self) -> None:
        """Ends calls in flight."""
        self._channel.close()


class _LoopConnection(_Stubs):
    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel)
        self.channel = channel
        self.places = asyncio.Semaphore(_MAX_CALL_COUNT)


class AsyncConnection:
    """The connections of an `AsyncClient`: gRPC binds each to the loop that opened it."""

    def __init__(self, access: Access, address: str) -> None:
        Address.parse(address)  # Or a ValueError would come with the first call.
        self._access = access
        self._address = address
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopConnection] = {}
        self._is_closed = False

    def current(self) -> _LoopConnection:
        """Returns that of the running loop."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("the client is closed; create another one")
        if (found := self._by_loop.get(loop)) is None:
            for ended in [each for each in list(self._by_loop) if each.is_closed()]:
                self._by_loop.pop(ended, None)
            found = _LoopConnection(self._access.open_aio_channel(self._address))
            self._by_loop[loop] = found
        return found

    async def close(self) -> None:
        """Closes that of the running loop; gRPC closes the others with their last call."""
        self._is_closed = True
        if connection := self._by_loop.pop(asyncio.get_running_loop(), None):
            await connection.channel.close()
        self._by_loop.clear()
