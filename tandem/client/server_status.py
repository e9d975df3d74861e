"""The status by which a server ended a stream of requests, which grpc.aio may lose.

A server that refuses such a stream ends it while the client still writes. The write fails, and
grpc.aio (1.85.1, gRPC's issue 36066) gives that as the status of the call: INTERNAL, "Internal
error from Core", before or after the server's own status came. A refused token or a full service
then reads as a fault. The synchronous API is not affected.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc

_Value = TypeVar("_Value")
_FAILED_WRITE = "Internal error from Core"
_WAIT_SECONDS = 1.0
"""The server's status is on its way where a write failed; without a connection it never comes."""


class ServerStatus:
    """What the server said at the end of one call, whatever became of the client's writes."""

    def __init__(self, call: grpc.aio.Call) -> None:
        """Watches a call from before its first write."""
        self._error: grpc.aio.AioRpcError | None = None
        self._arrived = asyncio.Event()
        call.add_done_callback(self._note)

    async def behind(self, error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """Returns what the server ended the call by, where `error` hides it; else `error`."""
        if error.details() != _FAILED_WRITE:
            return error
        try:
            await asyncio.wait_for(self._arrived.wait(), _WAIT_SECONDS)
        except TimeoutError:
            return error
        return self._error or error

    def _note(self, call: grpc.aio.Call) -> None:
        # gRPC calls this at each of the statuses that it gives the call, one over the other.
        details = _at_once(call.details())
        if self._arrived.is_set() or details == _FAILED_WRITE:
            return
        self._error = grpc.aio.AioRpcError(
            _at_once(call.code()),
            _at_once(call.initial_metadata()),
            _at_once(call.trailing_metadata()),
            details,
        )
        self._arrived.set()


def _at_once(answer: Coroutine[Any, Any, _Value]) -> _Value:
    """Returns what a call that is done tells without waiting.

    A task would ask only after the status had been overwritten.
    """
    try:
        answer.send(None)
    except StopIteration as told:
        value: _Value = told.value
        return value
    answer.close()
    raise RuntimeError("a call whose status is known has waited to tell it")
