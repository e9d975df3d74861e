"""How long an event loop is held at a time: what stands between a health check and its answer."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from unittest.mock import patch

from tandem.contract.filtering.attribute_wire import filter_from_proto, filter_to_proto
from tandem.contract.filtering.filters import AllOf, OneOf

LARGE_FILTER = filter_to_proto(
    AllOf(tuple(OneOf("a", tuple(range(number, number + 900))) for number in range(11)))
)
"""Of 9,900 values; there may be 10,000."""


@dataclass(slots=True)
class Turns:
    """Turns of a loop, each of one callback, that took long."""

    long_count: int = 0
    longest_seconds: float = 0.0


async def fewest_long_turns(calls: Callable[[], Awaitable[object]]) -> Turns:
    """Returns the fewest long turns of three times, while the calls are made.

    A long turn takes about a conversion of `LARGE_FILTER` or more; a turn without one took 0.6 of
    it at most in 44 of 45 measurements, and 1.7 once. On a busy machine the same work takes half
    as long again at times, which a turn that is always long does not need.
    """
    measured = []
    for _ in range(3):
        async with _watched_turns(0.9 * _conversion_seconds()) as turns:
            await calls()
        measured.append(turns)
    return min(measured, key=lambda each: each.long_count)


def _conversion_seconds() -> float:
    """Returns the processor's time for converting `LARGE_FILTER` once, without its checks."""

    def once() -> float:
        start_time = time.thread_time()
        filter_from_proto(LARGE_FILTER)
        return time.thread_time() - start_time

    return min(once() for _ in range(3))


@asynccontextmanager
async def _watched_turns(long_seconds: float) -> AsyncIterator[Turns]:
    """Yields what counts the callbacks of over `long_seconds` that a loop runs, while within.

    In the processor's time of the loop's thread: what other threads and processes take meanwhile
    is not a fault of what runs in the loop. By the callback, since a busy machine has many calls
    ready at once, whose callbacks the loop runs one after another.
    """
    turns = Turns()
    run = asyncio.Handle._run

    def watched(handle: asyncio.Handle) -> None:
        before = time.thread_time()
        run(handle)
        taken = time.thread_time() - before
        turns.longest_seconds = max(turns.longest_seconds, taken)
        turns.long_count += taken > long_seconds

    # A collection of all that a test run has made takes longer than what is looked for.
    gc.collect()
    gc.disable()
    with patch.object(asyncio.Handle, "_run", watched):
        try:
            yield turns
        finally:
            gc.enable()
