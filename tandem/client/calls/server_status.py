"""Recovers the server's status of a request stream, which grpc.aio may lose.

A server that refuses a stream ends it while the client still writes. The write fails, and grpc.aio
(1.85.1, grpc/grpc#36066) reports INTERNAL, "Internal error from Core", instead of the server's
status, so a refused token or a full service looks like a bug. A call that ends between its last
write and the note that all is written cancels itself, and a task that no one cancelled gets
CancelledError. The synchronous API is not affected.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc

_Value = TypeVar("_Value")
_FAILED_WRITE = "Internal error from Core"
_CANCELLED_HERE = "Locally cancelled by application!"
_WAIT_SECONDS = 1.0
"""How long to wait for the server's status; it never arrives without a connection."""


class ServerStatus:
    """Records the server's status of one call, whether or not the client's writes failed."""

    def __init__(self, call: grpc.aio.Call) -> None:
        """Watches a call; create it before the first write."""
        self._error: grpc.aio.AioRpcError | None = None
        self._arrived = asyncio.Event()
        call.add_done_callback(self._note)

    async def hidden_by(self, error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """Returns the server's status if `error` hides it, otherwise `error`."""
        if error.details() not in (_FAILED_WRITE, _CANCELLED_HERE):
            return error
        try:
            await asyncio.wait_for(self._arrived.wait(), _WAIT_SECONDS)
        except asyncio.TimeoutError:  # another class until Python 3.11
            return error
        return self._error or error

    async def hidden_by_cancellation(self) -> grpc.aio.AioRpcError:
        """Returns the server's status of a call that grpc.aio cancelled by itself."""
        empty = grpc.aio.Metadata()
        return await self.hidden_by(
            grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, empty, empty, _CANCELLED_HERE)
        )

    def _note(self, call: grpc.aio.Call) -> None:
        # gRPC calls this for each status that it sets on the call.
        details = _at_once(call.details())
        if self._arrived.is_set() or details in (_FAILED_WRITE, _CANCELLED_HERE):
            return
        self._error = grpc.aio.AioRpcError(
            _at_once(call.code()),
            _at_once(call.initial_metadata()),
            _at_once(call.trailing_metadata()),
            details,
        )
        self._arrived.set()


def is_being_cancelled() -> bool:
    """Returns whether somebody cancelled the task that runs; before Python 3.11 always true."""
    task = asyncio.current_task()
    if sys.version_info < (3, 11) or task is None:
        return True
    return task.cancelling() > 0


def _at_once(answer: Coroutine[Any, Any, _Value]) -> _Value:
    """Returns the status of a finished call without waiting.

    A task would read it only after gRPC has overwritten it.
    """
    try:
        answer.send(None)
    except StopIteration as stopped:
        value: _Value = stopped.value
        return value
    answer.close()
    raise RuntimeError("reading the status of a finished call waited")
