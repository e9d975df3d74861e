"""Bounds the memory of answers that callers have not read yet.

gRPC keeps an answer until the peer's window has room for it. A caller that never reads frees the
call's place, but not its bytes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from tandem.chassis.admission import AdmissionLimits
from tandem.chassis.interceptors.handlers import HandlerInterceptor, behavior, of_bytes
from tandem.chassis.metrics import ADMISSION_LIMIT, ADMISSION_REFUSED, ANSWER_BYTES
from tandem.chassis.places import caller_key
from tandem.errors import Overloaded


class AnswersInterceptor(HandlerInterceptor):
    """Counts answers until they are sent, and refuses too many.

    It ends a call whose answer stays unread for long.
    """

    def __init__(self, service: str, limits: AdmissionLimits) -> None:
        super().__init__()
        self._service = service
        self._max_bytes = limits.max_answer_bytes
        self._max_wait_seconds = limits.max_idle_seconds
        self._of_callers: Counter[str] = Counter()
        self._byte_count = 0
        ADMISSION_LIMIT.labels(service, "answers").set(limits.max_answer_bytes)
        ADMISSION_REFUSED.labels(service, "answers")
        ANSWER_BYTES.labels(service).set_function(lambda: self._byte_count)

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with serialized answers."""
        serve, serialize = behavior(handler), handler.response_serializer

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> bytes:  # noqa: ANN401
            data: bytes = serialize(await serve(request, context))
            held = self._hold(context, data)
            # gRPC sends it after this has returned, in the same task.
            context.add_done_callback(lambda _: held.give_back())
            return data

        async def stream(
            request: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[bytes]:
            async with aclosing(serve(request, context)) as responses:
                async for response in responses:
                    data: bytes = serialize(response)
                    held = self._hold(context, data)
                    try:
                        yield data
                    finally:
                        held.give_back()

        return of_bytes(handler, stream if handler.response_streaming else answer)

    def take(self, caller: str, byte_count: int) -> None:
        """Counts an answer; raises Overloaded if too many bytes are held already."""
        of_caller = self._of_callers[caller]
        if (self._byte_count and self._byte_count + byte_count > self._max_bytes) or (
            # One caller may hold half of it.
            of_caller and of_caller + byte_count > self._max_bytes // 2
        ):
            ADMISSION_REFUSED.labels(self._service, "answers").inc()
            raise Overloaded(
                what=f"{self._service} has {self._byte_count:,} bytes of unread "
                f"answers, {of_caller:,} of them for this caller; read them, or request less"
            )
        self._byte_count += byte_count
        self._of_callers[caller] += byte_count

    def give_back(self, caller: str, byte_count: int) -> None:
        """Stops counting an answer."""
        self._byte_count -= byte_count
        self._of_callers[caller] -= byte_count
        if not self._of_callers[caller]:
            del self._of_callers[caller]

    def _hold(self, context: grpc.aio.ServicerContext, data: bytes) -> _Held:
        caller = caller_key(context)
        self.take(caller, len(data))
        return _Held(self, caller, len(data), self._max_wait_seconds)


class _Held:
    """One answer that is being sent."""

    def __init__(
        self, owner: AnswersInterceptor, caller: str, byte_count: int, max_wait_seconds: float
    ) -> None:
        self._owner = owner
        self._caller = caller
        self._byte_count = byte_count
        task = asyncio.current_task()
        assert task is not None
        # A status could not reach the caller either: it would queue behind the answer.
        self._timer = asyncio.get_running_loop().call_later(max_wait_seconds, task.cancel)

    def give_back(self) -> None:
        """Marks the answer as sent, or as never to be sent."""
        self._timer.cancel()
        self._owner.give_back(self._caller, self._byte_count)
