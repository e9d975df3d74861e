"""Collects the requests of concurrent searches and sends those with equal keys in one call."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from tandem.contract.deadline import Deadline
from tandem.contract.limits import parts_within
from tandem.errors import TandemError

Key = TypeVar("Key", bound=Hashable)
Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class OpenSearches:
    """Counts the searches of a batch that have not ended yet."""

    count: int


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Key, Request, Answer]):
    """Holds a request until it is sent, and its answer until it is read."""

    key: Key
    request: Request
    size: int
    deadline: Deadline
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class CallBatcher(Generic[Key, Request, Answer]):
    """Holds requests until every open search has made one, or a moment has passed since the first.

    Cancelling one request leaves the call that it shares with others running.
    """

    def __init__(
        self,
        send: Callable[
            [Key, Sequence[Request], Deadline], Awaitable[Sequence[Answer | TandemError]]
        ],
        searches: OpenSearches,
        *,
        max_size: int,
        max_request_count: int = 64,
        wait_seconds: float = 0.005,
    ) -> None:
        """`send` takes a key, its requests and their earliest deadline.

        One call takes at most `max_request_count` requests, of at most `max_size` together.
        """
        self._send = send
        self._searches = searches
        self._max_size = max_size
        self._max_request_count = max_request_count
        self._wait_seconds = wait_seconds
        self._waiting: list[_Waiting[Key, Request, Answer]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, key: Key, request: Request, size: int, deadline: Deadline) -> Answer:
        """Returns the request's own answer; raises its own error, or that of the whole call."""
        waiting: _Waiting[Key, Request, Answer] = _Waiting(key, request, size, deadline)
        self._waiting.append(waiting)
        if len(self._waiting) >= self._searches.count:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_seconds, self._flush)
        return await waiting.answer

    async def close(self) -> None:
        """Cancels all running calls."""
        if self._timer:
            self._timer.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _flush(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        groups: dict[Key, list[_Waiting[Key, Request, Answer]]] = {}
        for each in self._waiting:
            if not each.answer.done():
                groups.setdefault(each.key, []).append(each)
        self._waiting = []
        for key, group in groups.items():
            for part in parts_within(
                group, lambda each: each.size, self._max_size, self._max_request_count
            ):
                call = asyncio.create_task(self._call(key, part))
                self._calls.add(call)
                call.add_done_callback(partial(self._ended, part))

    async def _call(self, key: Key, part: Sequence[_Waiting[Key, Request, Answer]]) -> None:
        answers = await self._send(
            key, [each.request for each in part], min(each.deadline for each in part)
        )
        for each, answer in zip(part, answers, strict=True):
            if each.answer.done():
                continue
            if isinstance(answer, TandemError):
                each.answer.set_exception(answer)
            else:
                each.answer.set_result(answer)

    def _ended(
        self, part: Sequence[_Waiting[Key, Request, Answer]], call: asyncio.Task[None]
    ) -> None:
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        for each in part:
            if each.answer.done():
                continue
            if error:
                each.answer.set_exception(error)
            else:
                each.answer.cancel()
