"""Refuses work past the service's capacity instead of queueing it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from tandem.chassis.capacity.admission import Admission
from tandem.chassis.capacity.places import Places
from tandem.chassis.interceptors.handlers import (
    HandlerInterceptor,
    behavior,
    method_of,
    with_behavior,
)
from tandem.chassis.interceptors.peer import caller_key
from tandem.chassis.interceptors.reading import request_byte_count
from tandem.chassis.interceptors.stream_watch import StreamWatch


class AdmissionInterceptor(HandlerInterceptor):
    """Admits calls within the limits.

    A call past them is refused. A message of a stream waits for room, and gRPC's flow control slows
    the sender. gRPC's own `maximum_concurrent_rpcs` does not count bytes, and recent versions
    queued and miscounted.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with admission of its requests or stream messages."""
        serve, method = behavior(handler), method_of(path)

        async def answer(request: Message, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            with self._call(method, request, context):
                return await serve(request, context)

        async def answers(
            request: Message, context: grpc.aio.ServicerContext
        ) -> AsyncIterator[Any]:
            with self._call(method, request, context):
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
                        messages.note_answer()
                        yield response

        if handler.request_streaming:
            chosen: Callable[..., Any] = (
                answers_stream if handler.response_streaming else answer_stream
            )
        else:
            chosen = answers if handler.response_streaming else answer
        return with_behavior(handler, chosen)

    @contextmanager
    def _call(
        self, method: str, request: Message, context: grpc.aio.ServicerContext
    ) -> Iterator[None]:
        count = self._admission.limits.weight(method, request)
        with self._admission.call(caller_key(context), count, request_byte_count()):
            yield

    @contextmanager
    def _stream(self, context: grpc.aio.ServicerContext) -> Iterator[_StreamMessages]:
        caller, watch = caller_key(context), StreamWatch(self._admission.limits.max_idle_seconds)
        messages = _StreamMessages(self._admission.messages, caller, watch)
        with self._admission.stream(caller):
            try:
                with watch.watching():
                    yield messages
            finally:
                messages.end()


class _StreamMessages:
    """The unanswered messages of one stream."""

    def __init__(self, places: Places, caller: str, watch: StreamWatch) -> None:
        self._places = places
        self._caller = caller
        self._watch = watch
        self._sizes: deque[int] = deque()
        self._is_reading = False

    async def read(self, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        """Yields the requests as there is room; reads the next one only then."""
        while True:
            with self._reading():
                request = await anext(requests, None)
            if request is None:
                return
            byte_count = request_byte_count()
            await self._places.wait_and_take(self._caller, byte_count)
            self._sizes.append(byte_count)
            yield request

    def note_answer(self) -> None:
        """Frees the room of the oldest message: its answer is made, if not sent yet."""
        if self._sizes:
            self._places.give_back(self._caller, 1, self._sizes.popleft())
            self._note()

    def end(self) -> None:
        """Frees the room of all messages."""
        while self._sizes:
            self.note_answer()

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
        is_idle = self._is_reading and not self._sizes
        self._watch.note("no message came" if is_idle else "")
