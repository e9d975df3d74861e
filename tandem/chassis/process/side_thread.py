"""A thread for requests that would hold the event loop too long.

A legal filter of 10,000 values takes tens of milliseconds of Python to check and to convert. In the
event loop a hundred such calls would stand between a health check and its answer. In one thread,
one after another, they share the interpreter with the loop, which waits for some milliseconds.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class SideThread:
    """Runs one piece of work at a time, in the order in which they come."""

    def __init__(self) -> None:
        """Starts no thread before there is work."""
        self._pool = ThreadPoolExecutor(1, "side")

    async def run(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns; if the caller gives up, work that still waits is dropped."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


@dataclass(frozen=True, slots=True)
class _Request:
    thread: SideThread
    is_large: bool


_current: ContextVar[_Request | None] = ContextVar("tandem_side_thread", default=None)


def bind_side_thread(thread: SideThread, *, is_large: bool) -> None:
    """Notes the thread for the current task's request, and whether all of it is converted there."""
    _current.set(_Request(thread, is_large))


async def converted(convert: Callable[[], T], *, is_slow: bool = False) -> T:
    """Returns what `convert` makes of the current request.

    It runs at once, unless the request is large or the caller knows that it takes over a
    millisecond.
    """
    request = _current.get()
    if request is not None and (request.is_large or is_slow):
        return await request.thread.run(convert)
    return convert()
