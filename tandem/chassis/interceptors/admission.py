"""Refuses work past the service's capacity instead of queueing it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import grpc
from google.protobuf.message import Message

from tandem.chassis.capacity.admission import Admission
from tandem.chassis.capacity.places import Places
from tandem.chassis.interceptors.handlers import AroundInterceptor, Passed, method_of, nothing
from tandem.chassis.interceptors.peer import caller_key
from tandem.chassis.interceptors.reading import request_byte_count
from tandem.errors import DeadlineExceeded


class AdmissionInterceptor(AroundInterceptor):
    """Admits calls within the limits.

    A call past them is refused. A message of a stream waits for room, and gRPC's flow control slows
    the sender. gRPC's own `maximum_concurrent_rpcs` does not count bytes, and recent versions
    queued and miscounted.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    @contextmanager
    def around(
        self, path: str, sent: Message | AsyncIterator[Message], context: grpc.aio.ServicerContext
    ) -> Iterator[Passed]:
        """Holds the places of a call while it runs, or of a stream and its unanswered messages."""
        caller, limits = caller_key(context), self._admission.limits
        if isinstance(sent, Message):
            count = limits.weight(method_of(path), sent)
            with self._admission.call(caller, count, request_byte_count()):
                yield sent, nothing
            return
        watch = _StreamWatch(limits.max_idle_seconds)
        messages = _StreamMessages(self._admission.messages, caller, watch)
        with self._admission.stream(caller):
            try:
                with watch.watching():
                    yield messages.read(sent), messages.note_answer
            finally:
                messages.end()


class _StreamMessages:
    """The unanswered messages of one stream."""

    def __init__(self, places: Places, caller: str, watch: "_StreamWatch") -> None:
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


class _StreamWatch:
    """Ends a stream whose caller is idle, from its own task, so that it frees its place."""

    def __init__(self, max_idle_seconds: float) -> None:
        self._max_idle_seconds = max_idle_seconds
        self._loop = asyncio.get_running_loop()
        self._idle_since = 0.0
        self._waiting_for = ""
        self._ended_by = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raises DeadlineExceeded in the body if the caller is idle for too long."""
        self._task = asyncio.current_task()
        self._arm(self._max_idle_seconds)
        try:
            yield
        except asyncio.CancelledError:
            if not self._ended_by:
                raise
            # This cancellation is ours; the call continues and ends with a status.
            if self._task is not None:
                self._task.uncancel()
            raise DeadlineExceeded(
                what=f"a wait of {self._max_idle_seconds:g} s: {self._ended_by}"
            ) from None
        finally:
            self._timer.cancel()

    def note(self, waiting_for: str) -> None:
        """Sets what the call waits for, such as "no message came"; "" for nothing.

        The time starts when it is first set, and ends when something else is.
        """
        if waiting_for != self._waiting_for:
            self._waiting_for, self._idle_since = waiting_for, self._loop.time()

    def _arm(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        if not self._waiting_for:
            self._arm(self._max_idle_seconds)
            return
        left_seconds = self._idle_since + self._max_idle_seconds - self._loop.time()
        if left_seconds > 0:
            self._arm(left_seconds)
            return
        self._ended_by = self._waiting_for
        if self._task is not None:
            self._task.cancel()
