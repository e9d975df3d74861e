"""Calls a server of this process through its interceptors, without a connection.

The interceptors are the server's own, so that calls by both ways share tokens, quotas, limits and
metrics. Requests and answers are bytes, as sizes are limited and counted by them. Each call has a
task of its own as with gRPC, since what is noted of a call is kept by task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, NamedTuple

import grpc

from tandem.chassis.interceptors.chain import InterceptorChain
from tandem.chassis.interceptors.handlers import behavior
from tandem.chassis.serve.direct_call import DirectCall, Metadata, rpc_error

Convert = Callable[[Any], Any]
Put = Callable[[bytes], Awaitable[None]]


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

        def opened(request: object, **options: Any) -> DirectStream:  # noqa: ANN401 (as a stub's)
            sent = iter([request_serializer(request)])
            return self._open(path, response_deserializer, sent, **options)

        return opened

    def stream_stream(
        self,
        path: str,
        request_serializer: Convert = bytes,
        response_deserializer: Convert = bytes,
        **_: object,
    ) -> Callable[..., DirectStream]:
        """Returns a callable for a method of requests, in an iterable, and a stream of answers."""

        def opened(requests: Iterable[object], **options: Any) -> DirectStream:  # noqa: ANN401
            sent = map(request_serializer, requests)
            return self._open(path, response_deserializer, sent, **options)

        return opened

    async def close(self) -> None:
        """Does nothing: calls end with their callers."""

    async def _ask(
        self,
        path: str,
        serialize: Convert,
        deserialize: Convert,
        request: object,
        **options: Any,  # noqa: ANN401 (as a stub's)
    ) -> Any:  # noqa: ANN401 (an answer)
        call = self._call(path, iter([serialize(request)]), **options)
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
        deserialize: Convert,
        sent: Iterator[bytes],
        **options: Any,  # noqa: ANN401 (as a stub's)
    ) -> DirectStream:
        call = self._call(path, sent, **options)
        return DirectStream(partial(self._stream, call), deserialize)

    def _call(
        self,
        path: str,
        requests: Iterator[bytes],
        *,
        timeout: float | None = None,
        metadata: Metadata = (),
    ) -> DirectCall:
        return DirectCall(path, requests, timeout, metadata, self._names)

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
            raise rpc_error(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
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
        raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
    finally:
        call.end()


def _ended() -> grpc.aio.AioRpcError:
    """Returns the error of a call that its interceptors ended, as over a connection."""
    return rpc_error(grpc.StatusCode.CANCELLED, "the call was ended")


def _serialized(handler: grpc.RpcMethodHandler, answer: object) -> bytes:
    data: bytes = handler.response_serializer(answer)
    return data
