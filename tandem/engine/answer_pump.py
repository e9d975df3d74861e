"""Keeps the answers of one streamed call for a reader outside of the services' event loop."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Generic, TypeVar

T = TypeVar("T")


class AnswerPump(Generic[T]):
    """Runs the call in one task, at most one answer ahead; its coroutines run in the call's loop.

    What servicers note of a call is kept by task, hence one for all of its answers.
    """

    def __init__(self, answers: AsyncGenerator[T, None]) -> None:
        """Begins nothing yet: the first `next` does."""
        self._answers = answers
        self._queue: asyncio.Queue[T] = asyncio.Queue(1)
        self._task: asyncio.Task[None] | None = None

    async def next(self) -> T | None:
        """Returns the next answer, None after the last; raises the call's error."""
        task = self._started()
        if self._queue.empty() and not task.done():
            getting = asyncio.create_task(self._queue.get())
            try:
                await asyncio.wait({getting, task}, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    return getting.result()
            finally:
                getting.cancel()
        if not self._queue.empty():
            return self._queue.get_nowait()
        task.result()
        return None

    def cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the call in its loop, if it still runs; any thread may call it."""
        if self._task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._task.cancel)

    def _started(self) -> asyncio.Task[None]:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            # A caller that stopped reads no error.
            self._task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return self._task

    async def _run(self) -> None:
        async with aclosing(self._answers) as answers:
            async for answer in answers:
                await self._queue.put(answer)


async def read_aside(requests: Iterator[T]) -> AsyncIterator[T]:
    """Yields what the iterator gives, read in a thread of its own, where it may wait."""
    reader = ThreadPoolExecutor(1, "items")
    loop = asyncio.get_running_loop()
    try:
        while (request := await loop.run_in_executor(reader, next, requests, None)) is not None:
            yield request
    finally:
        reader.shutdown(wait=False)
