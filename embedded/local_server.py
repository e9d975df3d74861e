"""Calls the servicers of this process as gRPC would, without a connection.

Messages are handed over as objects, so none is turned into bytes. Errors are raised as they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import grpc

from tandem.errors import DeadlineExceeded

T = TypeVar("T")


class LocalCall:
    """Stands in for gRPC's context of a call, with the part of it that servicers use."""

    def __init__(self, timeout_seconds: float | None) -> None:
        self._end_time = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._callbacks: list[Callable[[LocalCall], object]] = []

    def time_remaining(self) -> float | None:
        """Returns the seconds that the caller still waits; None if that is not limited."""
        return None if self._end_time is None else max(0.0, self._end_time - time.monotonic())

    def add_done_callback(self, callback: Callable[[LocalCall], object]) -> None:
        """Calls the callback once the call has ended."""
        self._callbacks.append(callback)

    def end(self) -> None:
        """Calls the callbacks."""
        for callback in self._callbacks:
            callback(self)


class LocalServer:
    """Holds servicers, and answers calls of their methods. Servicers register as with gRPC."""

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Does nothing: the generated code registers the methods by name too."""

    def add_registered_method_handlers(
        self, service_name: str, handlers: Mapping[str, grpc.RpcMethodHandler]
    ) -> None:
        """Adds a service's methods, as the generated code calls it."""
        for name, handler in handlers.items():
            self._handlers[f"/{service_name}/{name}"] = handler

    async def answer(self, path: str, request: object, timeout_seconds: float | None) -> Any:  # noqa: ANN401 (a message)
        """Returns the answer of a method without streams; raises its error, or DeadlineExceeded."""
        work = partial(self._handlers[path].unary_unary, request)
        return await self.run(path, work, timeout_seconds)

    async def run(
        self, path: str, work: Callable[[LocalCall], Awaitable[T]], timeout_seconds: float | None
    ) -> T:
        """Returns what the work of a call returns, which may be another type than its message."""
        call = LocalCall(timeout_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await work(call)
        except TimeoutError as error:
            raise _late(path) from error
        finally:
            call.end()

    async def answers(
        self, path: str, request: object, timeout_seconds: float | None
    ) -> AsyncGenerator[Any, None]:
        """Yields the answers of a method that streams them; errors as `answer`.

        The request of a method that streams these too is an async iterator of messages.
        """
        call = LocalCall(timeout_seconds)
        handler = self._handlers[path]
        serve = handler.stream_stream if handler.request_streaming else handler.unary_stream
        try:
            async with asyncio.timeout(timeout_seconds), aclosing(serve(request, call)) as answers:
                async for answer in answers:
                    yield answer
        except TimeoutError as error:
            raise _late(path) from error
        finally:
            call.end()


class LocalChannel:
    """Calls a `LocalServer` from its own event loop, with what stubs use of grpc.aio.Channel."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    def unary_unary(self, path: str, **_: object) -> Callable[..., Any]:
        """Returns a callable that calls the method."""
        return partial(self._ask, path)

    def unary_stream(self, path: str, **_: object) -> Callable[..., Any]:
        """Refuses: no service streams to another."""
        return partial(_refuse, path)

    stream_stream = unary_stream

    async def run(
        self, method: str, work: Callable[[LocalCall], Awaitable[T]], timeout_seconds: float
    ) -> T:
        """Returns what `work` returns, which answers a call of the method without messages."""
        return await self._server.run(method, work, timeout_seconds)

    async def _ask(  # gRPC names the arguments.
        self,
        path: str,
        request: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        metadata: object = None,
    ) -> Any:  # noqa: ANN401 (a message)
        return await self._server.answer(path, request, timeout)

    async def close(self) -> None:
        """Does nothing."""


def _refuse(path: str, *_: object, **__: object) -> None:
    raise NotImplementedError(f"{path} streams, which calls between services do not")


def _late(path: str) -> DeadlineExceeded:
    return DeadlineExceeded(what=f"the call of {path.rpartition('/')[2]}")
