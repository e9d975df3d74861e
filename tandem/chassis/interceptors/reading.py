"""Reads a call's requests after authentication, with limits of time and size.

gRPC reads and parses a unary request before it calls the handler. So every method gets a streaming
handler here: on the wire the two are the same, and a stream's messages are read on demand, as
bytes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from tandem.chassis.capacity.admission import Admission
from tandem.chassis.capacity.message_scanner import MessageScanner
from tandem.chassis.capacity.places import Places
from tandem.chassis.interceptors.handlers import (
    HandlerInterceptor,
    behavior,
    method_of,
    of_raw_stream,
)
from tandem.chassis.interceptors.peer import caller_key
from tandem.chassis.interceptors.probe_calls import ProbeCalls
from tandem.chassis.interceptors.slow_messages import SlowMessages
from tandem.chassis.process.side_thread import SideThread, bind_side_thread
from tandem.contract.deadline import Deadline
from tandem.contract.methods import PROBE_LIMIT, RequestLimit, request_limit
from tandem.errors import Overloaded, RequestMalformed

_Parse = Callable[[bytes], Awaitable[Any]]

_byte_count: ContextVar[int] = ContextVar("tandem_request_bytes")


def request_byte_count() -> int:
    """Returns the size on the wire of the current task's last request.

    Protobuf's own ByteSize takes as long as serializing: 60 ms for an image of 8 MiB.
    """
    return _byte_count.get()


class ReadingInterceptor(HandlerInterceptor):
    """Reads a call's requests, and parses those that are within their method's limits.

    Refuses a call for which there is no place, before it is read.
    """

    def __init__(self, admission: Admission, probe_streams: ProbeCalls) -> None:
        self._admission, limits = admission, admission.limits
        self._max_wait_seconds = limits.max_message_wait_seconds
        self._max_probe_wait_seconds = limits.max_probe_wait_seconds
        self._awaited = Places(limits.max_awaited_count)
        self._awaited_probes = ProbeCalls(limits.max_probe_count)
        self._probe_streams = probe_streams
        # Two, because in one all waiting requests would be parsed, and held, before the first is
        # converted.
        self._parsing, self._converting = SideThread(), SideThread()
        self._slow_probes = SlowMessages()

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns a handler that reads the requests of `handler`."""
        parse = self._parser(path, handler, request_limit(path))
        serve = behavior(handler)

        async def sent(context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            if handler.request_streaming:
                return _messages(context.read, parse)
            return await self._one(context, parse)

        async def answer(_: object, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            return await serve(await sent(context), context)

        async def stream(_: object, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            async with aclosing(serve(await sent(context), context)) as responses:
                async for response in responses:
                    yield response

        return of_raw_stream(handler, stream if handler.response_streaming else answer)

    def wrap_probe(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns a handler that reads the requests of a health or reflection call."""
        parse = self._parser(path, handler, PROBE_LIMIT)
        serve = behavior(handler)

        async def answer(_: object, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            async with self._awaited_probes.held(context):
                request = await self._probe(context, parse)
            return await serve(request, context)

        async def answers(_: object, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            async with self._probe_streams.held(context) as call:
                if handler.request_streaming:
                    # Each has to come in time.
                    read = partial(self._slow_probes.read, context, self._max_wait_seconds)
                    request: Any = _messages(read, parse)
                else:
                    request = await self._probe(context, parse)
                async with aclosing(serve(request, context)) as responses:
                    async for response in responses:
                        with self._probe_streams.sending(call):
                            yield response

        return of_raw_stream(handler, answers if handler.response_streaming else answer)

    def _parser(self, path: str, handler: grpc.RpcMethodHandler, limit: RequestLimit) -> _Parse:
        scanner = MessageScanner(method_of(path), _request_descriptor(path), limit)
        deserialize = handler.request_deserializer

        def parse(data: bytes) -> Any:  # noqa: ANN401
            try:
                return deserialize(data)
            except DecodeError as error:
                raise RequestMalformed(why=str(error)) from None

        def parse_large(data: bytes) -> Any:  # noqa: ANN401
            scanner.check(data)
            return parse(data)

        async def parsed(data: bytes) -> Any:  # noqa: ANN401
            _byte_count.set(len(data))
            is_small = scanner.check_small(data)
            bind_side_thread(self._converting, is_large=not is_small)
            if is_small:
                return parse(data)
            return await self._parsing.run(partial(parse_large, data))

        return parsed

    async def _one(self, context: grpc.aio.ServicerContext, parse: _Parse) -> Any:  # noqa: ANN401
        """Returns the call's request; raises if it does not arrive in time, or too many wait."""
        caller, awaited = caller_key(context), self._awaited
        if awaited.lack(caller):
            held_count, _ = awaited.of(caller)
            raise Overloaded(
                what=f"{awaited.count} calls wait for their request to be read, {held_count} of "
                "this caller"
            )
        with awaited.taken(caller):
            await self._admission.begin_call(caller)
            seconds = self._max_wait_seconds
            async with Deadline.after(seconds).kept(f"a wait of {seconds:g} s: no request came"):
                data = await context.read()
            return await _only(data, parse)

    async def _probe(self, context: grpc.aio.ServicerContext, parse: _Parse) -> Any:  # noqa: ANN401
        return await _only(
            await self._slow_probes.read(context, self._max_probe_wait_seconds), parse
        )


async def _messages(read: Callable[[], Awaitable[Any]], parse: _Parse) -> AsyncIterator[Any]:
    """Yields the requests of a stream; who reads limits the time of each, or admission does."""
    while (data := await read()) is not grpc.aio.EOF:
        yield await parse(data)


async def _only(data: Any, parse: _Parse) -> Any:  # noqa: ANN401
    """Returns the parsed message of a call that has one."""
    if data is grpc.aio.EOF:
        raise RequestMalformed(why="the call has no message")
    return await parse(data)


def _request_descriptor(path: str) -> Descriptor | None:
    """Returns the request's descriptor, or None for a method without a contract."""
    pool = descriptor_pool.Default()  # type: ignore[no-untyped-call]
    try:
        descriptor: Descriptor = pool.FindMethodByName(path.strip("/").replace("/", ".")).input_type
    except KeyError:
        return None
    return descriptor
