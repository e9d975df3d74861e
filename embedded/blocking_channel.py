"""Calls a `LocalServer` from other threads than its event loop's, as `Client` calls gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any

from embedded.local_server import LocalServer
from embedded.loop_thread import LoopThread


class BlockingChannel:
    """Has the part of grpc.Channel that the generated stubs use."""

    def __init__(self, server: LocalServer, thread: LoopThread, wait: Callable[[], None]) -> None:
        """Calls `wait` before each call, outside of its deadline."""
        self._server = server
        self._thread = thread
        self._wait = wait

    def unary_unary(self, path: str, **_: object) -> Callable[..., Any]:
        """Returns what calls the method and waits for its answer."""
        return partial(self._ask, path)

    def unary_stream(self, path: str, **_: object) -> Callable[..., BlockingStream]:
        """Returns what calls the method and gives its answers one by one."""
        return partial(self._open, path)

    def stream_stream(self, path: str, **_: object) -> Callable[..., BlockingStream]:
        """Returns the same for a method that takes an iterator of messages."""
        return partial(self._open_both, path)

    def close(self) -> None:
        """Does nothing: the server outlives its channels."""

    def _ask(
        self, path: str, request: object, *, timeout: float | None = None, metadata: object = None
    ) -> Any:  # noqa: ANN401 (a message)
        self._wait()
        return self._thread.run(self._server.answer(path, request, timeout))

    def _open(
        self, path: str, request: object, *, timeout: float | None = None, metadata: object = None
    ) -> BlockingStream:
        self._wait()
        return BlockingStream(self._server.answers(path, request, timeout), self._thread)

    def _open_both(
        self,
        path: str,
        requests: Iterator[object],
        *,
        timeout: float | None = None,
        metadata: object = None,
    ) -> BlockingStream:
        return self._open(path, _read_aside(requests), timeout=timeout)


class BlockingStream:
    """Gives the answers of one call, each as soon as it is there, and at most one ahead."""

    def __init__(self, answers: AsyncGenerator[Any, None], thread: LoopThread) -> None:
        self._thread = thread
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self._task = thread.run(self._start(answers))

    def __iter__(self) -> BlockingStream:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 (a message)
        """Returns the next answer; raises the call's error."""
        has_answer, answer = self._thread.run(self._next())
        if not has_answer:
            raise StopIteration
        return answer

    def cancel(self) -> None:
        """Ends the call, if it still runs."""
        if not self._thread.loop.is_closed():
            self._thread.loop.call_soon_threadsafe(self._task.cancel)

    async def _start(self, answers: AsyncGenerator[Any, None]) -> asyncio.Task[None]:
        # One task for the whole call, because what servicers note of a call is kept by task.
        task = asyncio.create_task(self._pump(answers))
        # A caller that stopped reads no error.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return task

    async def _pump(self, answers: AsyncGenerator[Any, None]) -> None:
        async with aclosing(answers):
            async for answer in answers:
                await self._queue.put(answer)

    async def _next(self) -> tuple[bool, Any]:
        if self._queue.empty() and not self._task.done():
            getting = asyncio.create_task(self._queue.get())
            await asyncio.wait({getting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return True, getting.result()
            getting.cancel()
        if not self._queue.empty():
            return True, self._queue.get_nowait()
        self._task.result()
        return False, None


async def _read_aside(requests: Iterator[object]) -> AsyncIterator[object]:
    """Yields what the iterator gives, read in a thread of its own, where it may wait."""
    reader = ThreadPoolExecutor(1, "items")
    loop = asyncio.get_running_loop()
    try:
        while (request := await loop.run_in_executor(reader, next, requests, None)) is not None:
            yield request
    finally:
        reader.shutdown(wait=False)
