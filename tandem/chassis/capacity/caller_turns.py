"""Runs work in a pool's threads, in turns by caller, so that no caller holds all threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from tandem.chassis.access.callers import asking_caller
from tandem.chassis.capacity.places import Places

T = TypeVar("T")

# The largest WebP takes this, so that of those one is decoded at a time.
_MAX_BYTES = 400_000_000


class CallerTurns:
    """Shares a pool's threads among callers as places are shared. For one event loop."""

    def __init__(self, threads: Executor, thread_count: int) -> None:
        """Takes a pool of `thread_count` threads, all of whose long work goes through here."""
        self._threads = threads
        self._places = Places(thread_count, _MAX_BYTES)

    async def run(self, function: Callable[[], T], byte_count: int = 0) -> T:
        """Returns the function's result, once it was the caller's turn.

        `byte_count` is the memory that it needs. If cancelled before that, it never starts.
        """
        caller = asking_caller()
        await self._places.wait_and_take(caller, byte_count)
        running = asyncio.get_running_loop().run_in_executor(self._threads, function)
        running.add_done_callback(lambda _: self._places.give_back(caller, 1, byte_count))
        # If the caller gives up, the thread is taken until the function ends.
        return await asyncio.shield(running)
