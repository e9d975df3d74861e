"""Runs an event loop in a thread, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tandem.chassis.started_threads import started_threads

T = TypeVar("T")

# Threads of asyncio.to_thread.
_THREAD_COUNT = 2


class LoopThread:
    """Runs coroutines in a loop of its own, and waits for them."""

    def __init__(self, name: str) -> None:
        """Starts the thread, which does not keep the program alive."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(started_threads(_THREAD_COUNT, name))
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns what the coroutine returns; a caller that is interrupted cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def awaited(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the same to another event loop, whose caller cancels it too."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def close(self) -> None:
        """Cancels what still runs, and ends the thread."""
        self.run(_cancel_others())
        self.run(self.loop.shutdown_asyncgens())
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
