"""Calls a server of this process through its interceptors, without a connection.

The interceptors are the server's own, so that calls by both ways share tokens, quotas, limits and
metrics. Requests and answers are bytes, as sizes are limited and counted by them. Each call has a
task of its own as with gRPC, since what is noted of a call is kept by task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

import grpc

from tandem.chassis.interceptors.handlers import InterceptorChain, behavior

Convert = Callable[[Any], Any]
Put = Callable[[bytes], Awaitable[None]]
Metadata = Sequence[tuple[str, str | bytes]]

# The peer of every call, as host:port: a call in this process has no connection.
_PEER = "in-process:0"


class DirectChannel:
    """Has what generated stubs and the gateway use of `grpc.aio.Channel`."""

    def __init__(
        self,
        chain: InterceptorChain,
        handlers: Mapping[str, grpc.RpcMethodHandler],
        names: Sequence[str] = (),
    ) -> None:
        """Takes handlers by path; `names` are the accepted names of callers' certificates."""
        self._chain = chain
        self._handlers = handlers
        self._names = names

    def unary_unary(
        self,
        path: str,
        request_serializer: Convert = bytes,
        response_deserializer: Convert = bytes,
        **_: object,
    ) -> Callable[..., Awaitable[Any]]:
        """Returns a callable for a method of one request and one answer."""
        return partial(self._ask, path, request_serializer, response_deserializer)

    def unary_stream(
        self,
        path: str,
        request_serializer: Convert = bytes,
        response_deserializer: Convert = bytes,
        **_: object,
    ) -> Callable[..., DirectStream]:
        """Returns a callable for a method of one request and a stream of answers."""

        def one(request: object) -> Iterator[bytes]:
            return iter([request_serializer(request)])

        return partial(self._open, path, one, response_deserializer)

    def stream_stream(
        self,
        path: str,
        request_serializer: Convert = bytes,
        response_deserializer: Convert = bytes,
        **_: object,
    ) -> Callable[..., DirectStream]:
        """Returns a callable for a method of requests, in an iterable, and a stream of answers."""
        return partial(self._open, path, partial(map, request_serializer), response_deserializer)

    async def close(self) -> None:
        """Does nothing: calls end with their callers."""

    async def _ask(
        self,
        path: str,
        serialize: Convert,
        deserialize: Convert,
        request: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (as a stub's)
        metadata: Metadata = (),
    ) -> Any:  # noqa: ANN401 (an answer)
        sent = iter([serialize(request)])
        call = DirectCall(path, sent, timeout, metadata, self._names)
        answering = asyncio.create_task(self._answer(call))
        try:
            return deserialize(await answering)
        except asyncio.CancelledError:
            if (caller := asyncio.current_task()) is not None and caller.cancelling():
                raise
            raise _ended() from None

    def _open(
        self,
        path: str,
        serialize_all: Callable[[Any], Iterator[bytes]],
        deserialize: Convert,
        sent: object,
        *,
        timeout: float | None = None,
        metadata: Metadata = (),
    ) -> DirectStream:
        call = DirectCall(path, serialize_all(sent), timeout, metadata, self._names)
        return DirectStream(partial(self._stream, call), deserialize)

    async def _answer(self, call: DirectCall) -> bytes:
        with _rpc_errors(call):
            async with asyncio.timeout(call.time_remaining()):
                handler = await self._handler(call)
                return _serialized(handler, await behavior(handler)(None, call))

    async def _stream(self, call: DirectCall, put: Put) -> None:
        with _rpc_errors(call):
            async with asyncio.timeout(call.time_remaining()):
                handler = await self._handler(call)
                async with aclosing(behavior(handler)(None, call)) as answers:
                    async for answer in answers:
                        await put(_serialized(handler, answer))

    async def _handler(self, call: DirectCall) -> grpc.RpcMethodHandler:
        async def found(details: _Details) -> grpc.RpcMethodHandler | None:
            return self._handlers.get(details.method)

        details = _Details(call.path, call.invocation_metadata())
        handler = await self._chain.intercept_service(found, details)
        if handler is None:
            raise _rpc_error(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return handler


class DirectStream:
    """The answers of one call, which runs at most one of them ahead of its reader."""

    def __init__(
        self, run: Callable[[Put], Coroutine[Any, Any, None]], deserialize: Convert
    ) -> None:
        self._deserialize = deserialize
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(1)
        self._task = asyncio.create_task(run(self._put))
        self._task.add_done_callback(self._note_end)

    def __aiter__(self) -> DirectStream:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 (an answer)
        """Returns the next answer; raises AioRpcError."""
        answer = await self._answers.get()
        if answer is not None:
            self._room.release()
            return self._deserialize(answer)
        self._answers.put_nowait(None)  # A later call finds the end again.
        if self._task.cancelled():
            raise _ended()
        self._task.result()
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Ends the call, if it still runs."""
        self._task.cancel()

    async def _put(self, answer: bytes) -> None:
        await self._room.acquire()
        self._answers.put_nowait(answer)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # A reader that stopped never reads it; asyncio would warn.
        self._answers.put_nowait(None)


class DirectCall:
    """Stands in for `grpc.aio.ServicerContext` where there is no connection."""

    def __init__(
        self,
        path: str,
        messages: Iterator[bytes],
        timeout_seconds: float | None,
        metadata: Metadata,
        names: Sequence[str] = (),
    ) -> None:
        """Treats this process as a caller whose certificate has these `names`."""
        self.path = path
        self._metadata = metadata
        self._messages = messages
        self._end_time = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._names = names
        self._callbacks: list[Callable[[DirectCall], object]] = []
        self._trailing: Metadata = ()
        self._code: grpc.StatusCode | None = None
        self._details = ""

    async def read(self) -> Any:  # noqa: ANN401 (bytes, or gRPC's mark of the end)
        """Returns the next request's bytes, or EOF."""
        return next(self._messages, grpc.aio.EOF)

    def time_remaining(self) -> float | None:
        """Returns the seconds that the caller still waits; None if that is not limited."""
        return None if self._end_time is None else max(0.0, self._end_time - time.monotonic())

    def peer(self) -> str:
        """Returns the same for all calls of this process."""
        return _PEER

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Returns the names as those of a certificate."""
        return {"x509_common_name": [name.encode() for name in self._names]}

    def invocation_metadata(self) -> Metadata:
        """Returns the headers of the call."""
        return self._metadata

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Sets what follows the answer."""
        self._trailing = metadata

    def trailing_metadata(self) -> Metadata:
        """Returns what follows the answer, or comes with the error."""
        return self._trailing

    def code(self) -> grpc.StatusCode | None:
        """Returns the code of an aborted call."""
        return self._code

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        """Ends the call with an error."""
        self._code, self._details, self._trailing = code, details, trailing_metadata
        raise grpc.aio.AbortError(details)

    def add_done_callback(self, callback: Callable[[DirectCall], object]) -> None:
        """Calls the callback once the call has ended."""
        self._callbacks.append(callback)

    def end(self) -> None:
        """Calls the callbacks."""
        for callback in self._callbacks:
            callback(self)

    def error(self) -> grpc.aio.AioRpcError:
        """Returns what a caller over a connection would raise of an aborted call."""
        return _rpc_error(self._code or grpc.StatusCode.UNKNOWN, self._details, self._trailing)


class _Details(NamedTuple):
    """What interceptors know of a call before its handler is chosen."""

    method: str
    invocation_metadata: Metadata


@contextmanager
def _rpc_errors(call: DirectCall) -> Iterator[None]:
    """Ends the call with the body; raises AioRpcError for an abort or a passed deadline."""
    try:
        yield
    except grpc.aio.AbortError:
        raise call.error() from None
    except TimeoutError:
        raise _rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
    finally:
        call.end()


def _ended() -> grpc.aio.AioRpcError:
    """Returns the error of a call that its interceptors ended, as over a connection."""
    return _rpc_error(grpc.StatusCode.CANCELLED, "the call was ended")


def _serialized(handler: grpc.RpcMethodHandler, answer: object) -> bytes:
    data: bytes = handler.response_serializer(answer)
    return data


def _rpc_error(
    code: grpc.StatusCode, details: str, trailing: Metadata = ()
) -> grpc.aio.AioRpcError:
    """Returns the error of a call, as gRPC raises it."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details=details
    )
