"""A channel that follows its certificates: new calls use new ones, calls in flight finish."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

import grpc

from tandem.chassis.tls import Certificates, Rotation

# For calls in flight on a channel with previous certificates; no deadline is longer.
_GRACE_SECONDS = 120.0


class RotatingChannel:
    """Has what stubs use of `grpc.aio.Channel`; opens another when certificates have changed."""

    def __init__(
        self, rotation: Rotation, open_with: Callable[[Certificates], grpc.aio.Channel]
    ) -> None:
        """`open_with` opens a channel to the same address with other certificates."""
        self._rotation = rotation
        self._open_with = open_with
        self._channel = open_with(rotation.certificates)
        self._closing: set[asyncio.Task[None]] = set()

    def current(self) -> grpc.aio.Channel:
        """Returns the channel for the next call."""
        if self._rotation.is_due():
            before, self._channel = self._channel, self._open_with(self._rotation.certificates)
            task = asyncio.get_running_loop().create_task(before.close(_GRACE_SECONDS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return self._channel

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (gRPC's own)
        """As grpc.aio.Channel's."""
        return self._method("unary_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """As grpc.aio.Channel's."""
        return self._method("unary_stream", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """As grpc.aio.Channel's."""
        return self._method("stream_stream", arguments, options)

    async def close(self, grace: float | None = None) -> None:
        """Closes this channel, and the earlier ones that may have calls in flight."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def _method(
        self, arity: str, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """Returns a method, which is opened again where the channel is another one."""
        opened: tuple[grpc.aio.Channel, Callable[..., Any]] | None = None

        def called(*sent: Any, **call_options: Any) -> Any:  # noqa: ANN401
            nonlocal opened
            channel = self.current()
            if opened is None or opened[0] is not channel:
                opened = channel, getattr(channel, arity)(*arguments, **options)
            return opened[1](*sent, **call_options)

        return called
