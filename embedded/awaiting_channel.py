"""Calls a `LocalServer` from another event loop than its own, as `AsyncClient` calls gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from embedded.answer_pump import AnswerPump, read_aside
from embedded.open_folder import OpenFolder


class AwaitingChannel:
    """Has the part of grpc.aio.Channel that the generated stubs use."""

    def __init__(self, folder: OpenFolder) -> None:
        """Waits for the model before each call, outside of its deadline."""
        self._folder = folder

    def unary_unary(self, path: str, **_: object) -> Callable[..., Any]:
        """Returns a callable that calls the method and awaits its answer."""
        return partial(self._ask, path)

    def unary_stream(self, path: str, **_: object) -> Callable[..., AwaitingStream]:
        """Returns a callable that calls the method and gives its answers one by one."""
        return partial(self._open, path)

    def stream_stream(self, path: str, **_: object) -> Callable[..., AwaitingStream]:
        """Returns the same for a method that takes an iterator of messages."""
        return partial(self._open_both, path)

    async def close(self) -> None:
        """Does nothing: the services outlive their channels."""

    async def _ask(  # gRPC names the arguments.
        self,
        path: str,
        request: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        metadata: object = None,
    ) -> Any:  # noqa: ANN401 (a message)
        await self._folder.until_ready()
        return await self._folder.thread.awaited(self._folder.server.answer(path, request, timeout))

    def _open(
        self, path: str, request: object, *, timeout: float | None = None, metadata: object = None
    ) -> AwaitingStream:
        pump = AnswerPump(self._folder.server.answers(path, request, timeout))
        return AwaitingStream(pump, self._folder)

    def _open_both(
        self,
        path: str,
        requests: Iterator[object],
        *,
        timeout: float | None = None,
        metadata: object = None,
    ) -> AwaitingStream:
        return self._open(path, read_aside(requests), timeout=timeout)


class AwaitingStream:
    """Gives the answers of one call, which begins with the first that is awaited."""

    def __init__(self, pump: AnswerPump, folder: OpenFolder) -> None:
        self._pump = pump
        self._folder = folder
        self._is_begun = False

    def __aiter__(self) -> AwaitingStream:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 (a message)
        """Returns the next answer; raises the call's error."""
        if not self._is_begun:
            await self._folder.until_ready()
            self._is_begun = True
        has_answer, answer = await self._folder.thread.awaited(self._pump.next())
        if not has_answer:
            raise StopAsyncIteration
        return answer

    def cancel(self) -> None:
        """Ends the call, if it still runs."""
        self._pump.cancel(self._folder.thread.loop)

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Does nothing: the call's error is raised as it is, and no status hides it."""
