"""Ends a gRPC call whose caller does not read.

grpc.aio has no way to do so. A cancelled handler leaves the call open, with the answer that waits
to be sent, until its caller ends it: a task of grpc.aio holds it, and so does a cycle of references
through its callbacks.
"""

from __future__ import annotations

import asyncio
import gc

import grpc

# What grpc.aio calls the task that waits for the caller's end, and what it holds.
_LISTENING = "rpc_task"
_STATE = "RPCState"


def end_call(context: grpc.aio.ServicerContext, handling: asyncio.Task[None]) -> None:
    """Cancels the task that handles the call, and frees the call."""
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
