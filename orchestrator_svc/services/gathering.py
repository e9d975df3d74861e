"""What several searches ask at one time, asked in common."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from tandem.errors import TandemError

Key = TypeVar("Key", bound=Hashable)
Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Parties:
    """How many searches are still under way."""

    count: int


class Gathering(Generic[Key, Request, Answer]):
    """Holds requests until every search has made one, or a moment has passed since the first.

    Those of one key go out together. An asker that is cancelled leaves the others' call alone.
    """

    def __init__(
        self,
        answer_all: Callable[[Key, Sequence[Request]], Awaitable[Sequence[Answer | TandemError]]],
        parties: Parties,
        *,
        size_of: Callable[[Request], int],
        most: int,
        most_requests: int = 64,
        wait_seconds: float = 0.005,
    ) -> None:
        """One call takes at most `most_requests`, of a size of `most` in all."""
        self._answer_all = answer_all
        self._parties = parties
        self._size_of = size_of
        self._most = most
        self._most_requests = most_requests
        self._wait_seconds = wait_seconds
        self._waiting: list[tuple[Key, Request, asyncio.Future[Answer]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, key: Key, request: Request) -> Answer:
        """Returns the request's own answer; raises its own error, or that of the whole call."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((key, request, future))
        if len(self._waiting) >= self._parties.count:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_later(self._wait_seconds, self._send)
        return await future

    async def close(self) -> None:
        """Ends all calls that are under way."""
        if self._timer:
            self._timer.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _send(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        groups: dict[Key, list[tuple[Request, asyncio.Future[Answer]]]] = {}
        for key, request, future in self._waiting:
            if not future.done():
                groups.setdefault(key, []).append((request, future))
        self._waiting = []
        for key, asked in groups.items():
            for part in self._parts(asked):
                call = asyncio.create_task(self._call(key, part))
                self._calls.add(call)
                call.add_done_callback(partial(self._ended, part))

    def _parts(
        self, asked: Sequence[tuple[Request, asyncio.Future[Answer]]]
    ) -> Iterator[list[tuple[Request, asyncio.Future[Answer]]]]:
        part: list[tuple[Request, asyncio.Future[Answer]]] = []
        size = 0
        for request, future in asked:
            request_size = self._size_of(request)
            if part and (size + request_size > self._most or len(part) == self._most_requests):
                yield part
                part, size = [], 0
            part.append((request, future))
            size += request_size
        if part:
            yield part

    async def _call(self, key: Key, part: Sequence[tuple[Request, asyncio.Future[Answer]]]) -> None:
        answers = await self._answer_all(key, [request for request, _ in part])
        for (_, future), answer in zip(part, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, TandemError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _ended(
        self,
        part: Sequence[tuple[Request, asyncio.Future[Answer]]],
        call: asyncio.Task[None],
    ) -> None:
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        for _, future in part:
            if future.done():
                continue
            if error:
                future.set_exception(error)
            else:
                future.cancel()
