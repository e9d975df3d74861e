"""Calls a `LocalServer` from other threads than its event loop's, as `Client` calls gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import Any

from embedded.answer_pump import AnswerPump, read_aside
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
        """Returns a callable that calls the method and waits for its answer."""
        return partial(self._ask, path)

    def unary_stream(self, path: str, **_: object) -> Callable[..., BlockingStream]:
        """Returns a callable that calls the method and gives its answers one by one."""
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
        return self._open(path, read_aside(requests), timeout=timeout)


class BlockingStream:
    """Gives the answers of one call, each as soon as it is there, and at most one ahead."""

    def __init__(self, answers: AsyncGenerator[Any, None], thread: LoopThread) -> None:
        self._thread = thread
        self._pump = AnswerPump(answers)
        thread.run(self._pump.start())

    def __iter__(self) -> BlockingStream:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 (a message)
        """Returns the next answer; raises the call's error."""
        has_answer, answer = self._thread.run(self._pump.next())
        if not has_answer:
            raise StopIteration
        return answer

    def cancel(self) -> None:
        """Ends the call, if it still runs."""
        self._pump.cancel(self._thread.loop)
