"""Refuses work past the service's capacity instead of queueing it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import lru_cache
from typing import Any, NoReturn

import grpc
from google.protobuf.message import Message

from tandem.chassis.admission import AdmissionLimits, Pace, Room
from tandem.chassis.interceptors.handlers import (
    KEPT_HANDLER_COUNT,
    UNOBSERVED,
    HandlerInterceptor,
    behavior,
    method_of,
    with_behavior,
)
from tandem.chassis.interceptors.reading import request_byte_count
from tandem.chassis.metrics import ADMISSION_LIMIT, ADMISSION_REFUSED, INFLIGHT_BYTES
from tandem.chassis.places import Places, caller_key
from tandem.chassis.stream_watch import StreamWatch
from tandem.errors import Overloaded


class AdmissionInterceptor(HandlerInterceptor):
    """Admits calls within the limits.

    A call past them is refused; if there is no place, before its request is read. A message of a
    stream waits for room, and gRPC's flow control slows the sender. gRPC's own
    `maximum_concurrent_rpcs` does not count bytes, and recent versions queued and miscounted.
    """

    def __init__(self, service: str, limits: AdmissionLimits) -> None:
        super().__init__()
        self._service = service
        self._limits = limits
        self._calls = Room(limits.max_inflight_count, limits.max_inflight_bytes)
        self._streams = Places(limits.max_stream_count, limits.max_stream_count_by_caller)
        self._messages = Room(limits.max_stream_message_count, limits.max_stream_bytes)
        self._pace = Pace()
        self._refusing = lru_cache(KEPT_HANDLER_COUNT)(self._make_refusing)
        for limit, most in (
            ("count", limits.max_inflight_count),
            ("bytes", limits.max_inflight_bytes),
            ("streams", limits.max_stream_count),
        ):
            ADMISSION_LIMIT.labels(service, limit).set(most)
            # A counter that appears with its first count hides that count from rate().
            ADMISSION_REFUSED.labels(service, limit)
        INFLIGHT_BYTES.labels(service).set_function(
            lambda: self._calls.byte_count + self._messages.byte_count
        )

    def chosen(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns a handler that refuses before reading the request if there is no place."""
        if path.startswith(UNOBSERVED):
            return handler
        if not handler.request_streaming and self._calls.lacks_places():
            return self._refusing(handler)
        return self.wrapped(path, handler)

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with admission of its requests or stream messages."""
        serve, method = behavior(handler), method_of(path)

        async def answer(request: Message, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            with self._call(method, request):
                return await serve(request, context)

        async def answers(
            request: Message, context: grpc.aio.ServicerContext
        ) -> AsyncIterator[Any]:
            with self._call(method, request):
                async with aclosing(serve(request, context)) as responses:
                    async for response in responses:
                        yield response

        async def answer_stream(
            requests: AsyncIterator[Message], context: grpc.aio.ServicerContext
        ) -> Any:  # noqa: ANN401
            with self._stream(context) as messages:
                return await serve(messages.read(requests), context)

        async def answers_stream(
            requests: AsyncIterator[Message], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[Any]:
            with self._stream(context) as messages:
                async with aclosing(serve(messages.read(requests), context)) as responses:
                    async for response in responses:
                        with messages.sending():
                            yield response

        if handler.request_streaming:
            chosen: Callable[..., Any] = (
                answers_stream if handler.response_streaming else answer_stream
            )
        else:
            chosen = answers if handler.response_streaming else answer
        return with_behavior(handler, chosen)

    @contextmanager
    def _call(self, method: str, request: Message) -> Iterator[None]:
        count, byte_count = self._limits.weight(method, request), request_byte_count()
        if self._calls.lacks_places(count):
            self._refuse_count()
        if self._calls.lacks_bytes(byte_count):
            self._refuse(
                "bytes",
                f"{self._service} has {self._calls.byte_count:,} bytes of requests in flight",
            )
        self._calls.take(count, byte_count)
        try:
            yield
        finally:
            self._calls.give_back(count, byte_count)
            self._pace.note_end()

    @contextmanager
    def _stream(self, context: grpc.aio.ServicerContext) -> Iterator[_StreamMessages]:
        caller = caller_key(context)
        if lack := self._streams.lack(caller):
            self._refuse(
                "streams", f"{self._service} serves {self._streams.count} streams already: {lack}"
            )
        watch = StreamWatch(self._limits.max_idle_seconds)
        messages = _StreamMessages(self._messages, watch)
        with self._streams.taken(caller):
            try:
                with watch.watching():
                    yield messages
            finally:
                messages.end()
                self._pace.note_end()

    def _make_refusing(self, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        # A stream-to-unary handler, whatever the method is: gRPC reads a unary request before it
        # calls the handler, and this one reads none.
        async def refuse(
            _requests: AsyncIterator[Message], _context: grpc.aio.ServicerContext
        ) -> NoReturn:
            self._refuse_count()

        return grpc.stream_unary_rpc_method_handler(
            refuse,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _refuse_count(self) -> NoReturn:
        self._refuse("count", f"{self._service} serves {self._calls.count} calls already")

    def _refuse(self, limit: str, what: str) -> NoReturn:
        ADMISSION_REFUSED.labels(self._service, limit).inc()
        raise Overloaded(what=what, retry_delay_seconds=self._pace.retry_delay_seconds())


class _StreamMessages:
    """The unanswered messages of one stream."""

    def __init__(self, room: Room, watch: StreamWatch) -> None:
        self._room = room
        self._watch = watch
        self._sizes: deque[int] = deque()
        self._is_reading = False
        self._is_sending = False

    async def read(self, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        """Yields the requests as there is room; reads the next one only then."""
        while True:
            with self._reading():
                request = await anext(requests, None)
            if request is None:
                return
            byte_count = request_byte_count()
            await self._room.wait_and_take(byte_count)
            self._sizes.append(byte_count)
            yield request

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Sends the answer of the oldest message, and frees its room."""
        self._answer_one()
        self._is_sending = True
        self._note()
        try:
            yield
        finally:
            self._is_sending = False
            self._note()

    def end(self) -> None:
        """Frees the room of all messages."""
        while self._sizes:
            self._answer_one()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._is_reading = True
        self._note()
        try:
            yield
        finally:
            self._is_reading = False
            self._note()

    def _note(self) -> None:
        if self._is_sending:
            self._watch.note("no answer was taken")
        elif self._is_reading and not self._sizes:
            self._watch.note("no message came")
        else:
            self._watch.note("")

    def _answer_one(self) -> None:
        if self._sizes:
            self._room.give_back(1, self._sizes.popleft())
