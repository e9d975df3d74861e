"""Makes answers at the service's pace, and sends them at their caller's.

gRPC keeps an answer until the peer's window has room for it. A caller that does not read holds
neither a place nor, for long, the bytes of its answers.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import grpc

from tandem.chassis.capacity.admission import Admission
from tandem.chassis.interceptors.handlers import HandlerInterceptor, behavior, of_bytes
from tandem.chassis.interceptors.peer import caller_key

# What grpc.aio calls the task that waits for the caller's end, and what it holds.
_LISTENING = "rpc_task"
_STATE = "RPCState"


class AnswersInterceptor(HandlerInterceptor):
    """Counts answers until they are sent, and ends a call whose caller does not read them."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler` with serialized answers."""
        serve, serialize = behavior(handler), handler.response_serializer

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> bytes:  # noqa: ANN401
            data: bytes = serialize(await serve(request, context))
            give_back = self._admission.hold_answer(caller_key(context), len(data))
            timer = self._timer(context, len(data))

            # gRPC sends it after this has returned, in the same task.
            def end(_: object) -> None:
                timer.cancel()
                give_back()

            context.add_done_callback(end)
            return data

        async def stream(
            request: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[bytes]:
            caller = caller_key(context)
            made: asyncio.Queue[tuple[bytes, Callable[[], None]] | None] = asyncio.Queue()

            async def make() -> None:
                try:
                    async with aclosing(serve(request, context)) as responses:
                        async for response in responses:
                            data: bytes = serialize(response)
                            give_back = self._admission.hold_answer(caller, len(data))
                            made.put_nowait((data, give_back))
                finally:
                    made.put_nowait(None)

            making = asyncio.create_task(make())
            # The caller may leave while gRPC sends, and this generator hears of it late.
            context.add_done_callback(lambda _: making.cancel())
            try:
                while (each := await made.get()) is not None:
                    data, give_back = each
                    with self._sending(context, len(data), give_back):
                        yield data
                await making
                # gRPC took small answers into a buffer, where they may stay unread too.
                timer = self._timer(context, 0)
                context.add_done_callback(lambda _: timer.cancel())
            finally:
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)
                while not made.empty():
                    if (each := made.get_nowait()) is not None:
                        each[1]()

        return of_bytes(handler, stream if handler.response_streaming else answer)

    @contextmanager
    def _sending(
        self, context: grpc.aio.ServicerContext, byte_count: int, give_back: Callable[[], None]
    ) -> Iterator[None]:
        timer = self._timer(context, byte_count)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    def _timer(self, context: grpc.aio.ServicerContext, byte_count: int) -> asyncio.TimerHandle:
        task = asyncio.current_task()
        assert task is not None
        # A status could not reach the caller either: it would queue behind the answer.
        seconds = self._admission.limits.unread_seconds(byte_count)
        return asyncio.get_running_loop().call_later(seconds, _end_call, context, task)


def _end_call(context: grpc.aio.ServicerContext, handling: asyncio.Task[None]) -> None:
    """Cancels the task that handles the call, and frees the call.

    grpc.aio has no way to do so. A cancelled handler leaves the call open, with the answer that
    waits to be sent, until its caller ends it: a task of grpc.aio holds it, and so does a cycle of
    references through its callbacks.
    """
    for task in asyncio.all_tasks():
        # A coroutine's variables are in an object of its own, once compiled by Cython.
        if task.get_name() == _LISTENING and any(
            each is handling for each in gc.get_referents(*gc.get_referents(task.get_coro()))
        ):
            task.cancel()
    handling.cancel()
    states = [each for each in gc.get_referents(context) if type(each).__name__ == _STATE]

    def forget_callbacks(_: object) -> None:
        # They have run by now: grpc.aio's own callback came before this one.
        for each in gc.get_referents(*states):
            if isinstance(each, list):
                each.clear()

    handling.add_done_callback(forget_callbacks)
