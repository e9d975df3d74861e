"""Runs an event loop in a thread, for callers that have none."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from tandem.chassis.process.threads import started_threads

T = TypeVar("T")

# Threads of asyncio.to_thread.
_THREAD_COUNT = 2


class EngineClosed(ValueError):
    """An engine was called after its end, or ended before it could answer."""

    def __init__(self) -> None:
        super().__init__("this Engine is closed: open its folder again")


class LoopThread:
    """Runs coroutines in a loop of its own, and waits for them."""

    def __init__(self, name: str) -> None:
        """Starts the thread, which does not keep the program alive."""
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(started_threads(_THREAD_COUNT, name))
        # Of a call that is handed over to the loop, and of the end, after which none is.
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns what the coroutine returns; a caller that is interrupted cancels it.

        Raises EngineClosed after `close`, and if that comes before the coroutine's end.
        """
        future = self._begun(coroutine)
        try:
            return future.result()
        except CancelledError:
            if self._is_closed:
                raise EngineClosed from None
            raise
        finally:
            future.cancel()

    async def awaited(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the same to another event loop, whose caller cancels it too."""
        future = self._begun(coroutine)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise EngineClosed from None
            raise

    def close(self) -> None:
        """Cancels what still runs, and ends the thread."""
        with self._lock:
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._ended(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _begun(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        coroutine.close()
        raise EngineClosed

    async def _ended(self) -> None:
        await _cancel_others()
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
