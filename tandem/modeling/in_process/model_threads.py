"""Runs a model's inferences in threads of their own, with a short way back to the event loop."""

import asyncio
import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ModelThreads:
    """Takes work in its order of arrival.

    `loop.run_in_executor` does the same by way of a second future, whose locks and callbacks take a
    noticeable part of a short search.
    """

    def __init__(self, count: int, name: str) -> None:
        """Starts the threads. They do not keep the program alive, but it waits for their work.

        Threads that ended in the middle of torch's code would abort the program.
        """
        self._jobs: SimpleQueue[_Job[Any] | Callable[[], None] | None] = SimpleQueue()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}_{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Returns the future of work that any thread may wait for."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(run)
        return future

    async def run(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, or raises what it raises.

        If the caller gives up, work that still waits is dropped; begun work runs to its end.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future())
        self._jobs.put(job)
        return await job.future

    def close(self) -> None:
        """Waits for work that has begun, drops work that waits, and ends the threads."""
        self._is_closed = True
        atexit.unregister(self.close)
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._is_closed:
                job()


@dataclass(frozen=True, slots=True, eq=False)
class _Job(Generic[T]):
    """Holds work, and the future of the event loop that waits for it."""

    work: Callable[[], T]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def __call__(self) -> None:
        if self.future.cancelled():
            return
        result: T | None = None
        error: BaseException | None = None
        try:
            result = self.work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # of a loop that is closed
            self.loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: T | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)  # type: ignore[arg-type]
