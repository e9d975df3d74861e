"""Runs work in a pool's threads, in turns by caller, so that no caller holds all threads."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tandem.chassis.places import asking_caller

T = TypeVar("T")

# A caller that asked so recently is expected to ask again, and then finds a thread.
_RECENT_SECONDS = 5.0
# Of a caller's work at a time, unless it is one piece: the largest WebP takes this.
_MAX_BYTES_BY_CALLER = 400_000_000


class _Work(NamedTuple):
    function: Callable[[], Any]
    byte_count: int
    result: asyncio.Future[Any]


class CallerTurns:
    """Shares threads among callers: all for one alone, half for each while others ask.

    For one event loop.
    """

    def __init__(self, threads: Executor, thread_count: int) -> None:
        """Takes a pool of `thread_count` threads, all of whose long work goes through here."""
        self._threads = threads
        self._thread_count = thread_count
        self._waiting: dict[str, deque[_Work]] = {}  # The next caller's turn is first.
        self._running: Counter[str] = Counter()
        self._running_bytes: Counter[str] = Counter()
        self._asked_times: dict[str, float] = {}

    async def run(self, function: Callable[[], T], byte_count: int = 0) -> T:
        """Returns the function's result, once it was the caller's turn.

        `byte_count` is the memory that it needs. If cancelled before that, it never starts.
        """
        caller, result = asking_caller(), asyncio.get_running_loop().create_future()
        self._asked_times[caller] = time.monotonic()
        self._waiting.setdefault(caller, deque()).append(_Work(function, byte_count, result))
        self._start()
        return await result  # type: ignore[no-any-return]

    def _start(self) -> None:
        """Starts all work that threads are left for."""
        while self._running.total() < self._thread_count and (found := self._next()):
            caller, work = found
            self._running[caller] += 1
            self._running_bytes[caller] += work.byte_count
            running = work.result.get_loop().run_in_executor(self._threads, work.function)
            running.add_done_callback(partial(self._ended, caller, work))

    def _next(self) -> tuple[str, _Work] | None:
        """Takes the next work out of its queue, and moves its caller behind the others."""
        for caller, waiting in list(self._waiting.items()):
            while waiting and waiting[0].result.done():
                waiting.popleft()
            if waiting and not self._may_start(caller, waiting[0].byte_count):
                continue
            del self._waiting[caller]
            if waiting:
                self._waiting[caller] = waiting
                return caller, waiting.popleft()
        return None

    def _may_start(self, caller: str, byte_count: int) -> bool:
        count = self._running[caller]
        if count and self._running_bytes[caller] + byte_count > _MAX_BYTES_BY_CALLER:
            return False
        oldest_time = time.monotonic() - _RECENT_SECONDS
        self._asked_times = {k: v for k, v in self._asked_times.items() if v > oldest_time}
        is_alone = self._asked_times.keys() <= {caller}
        return count < (self._thread_count if is_alone else max(1, self._thread_count // 2))

    def _ended(self, caller: str, work: _Work, running: asyncio.Future[Any]) -> None:
        self._running -= Counter([caller])  # which forgets a caller that has none
        self._running_bytes -= Counter({caller: work.byte_count})
        if not work.result.done():
            if error := running.exception():
                work.result.set_exception(error)
            else:
                work.result.set_result(running.result())
        self._start()
