"""Limits the bytes of contents that answers hold: each answer, and all of them together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from tandem.errors import AnswerTooLarge, Overloaded

MAX_ANSWER_CONTENT_BYTES = 48 * 2**20
"""Of a message's 64 MiB; the rest is for ids, scores and the cursor."""

MAX_HELD_CONTENT_BYTES = 256 * 2**20
"""For all answers in flight. A content exists up to three times (as read, in a message, in bytes),
and a container has 2 GiB."""

_WAIT_SECONDS = 0.25
"""To wait for other answers to release memory. Answers that hold some and wait longer could
deadlock."""

_current_hold: "ContextVar[ContentHold | None]" = ContextVar("content_hold", default=None)


class Call(Protocol):
    """Reports the end of a call that is being served."""

    def add_done_callback(self, callback: Any) -> None:  # noqa: ANN401 (gRPC's)
        """Calls the callback with the call, once its answer is sent or the caller is gone."""


class ContentBudget:
    """Limits the contents that all answers in flight hold together."""

    def __init__(self, limit_bytes: int = MAX_HELD_CONTENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def held_bytes(self) -> int:
        """The bytes held now."""
        return self._limit_bytes - self._left_bytes

    def hold_for(self, call: Call) -> None:
        """Charges all that this task and its subtasks read from now on to a call.

        It is released when the call ends: a slow reader may keep its answer waiting for long.
        """
        hold = ContentHold(self)
        call.add_done_callback(lambda _: hold.release())
        _current_hold.set(hold)

    async def take(self, byte_count: int) -> None:
        """Takes that many bytes; raises Overloaded if they do not become free in a moment."""
        loop = asyncio.get_running_loop()
        end_time = loop.time() + _WAIT_SECONDS
        while byte_count > self._left_bytes:
            freed: asyncio.Future[None] = loop.create_future()
            self._waiting.add(freed)
            try:
                async with asyncio.timeout_at(end_time):
                    await freed
            except TimeoutError:
                raise Overloaded(
                    what=f"answers in flight hold {self.held_bytes:,} bytes of contents"
                ) from None
            finally:
                self._waiting.discard(freed)
        self._left_bytes -= byte_count

    def give(self, byte_count: int) -> None:
        """Releases that many bytes; a negative number takes them, even past the limit."""
        self._left_bytes += byte_count
        for freed in self._waiting:
            if not freed.done():
                freed.set_result(None)


class ContentHold:
    """Counts what one call holds of the budget."""

    def __init__(self, budget: ContentBudget) -> None:
        self._budget = budget
        self._held_bytes = 0
        self._is_released = False

    async def take(self, byte_count: int) -> None:
        """Takes bytes as ContentBudget.take does, until the call ends."""
        await self._budget.take(byte_count)
        self._held_bytes += byte_count
        if self._is_released:  # while this waited
            self.release()

    def give(self, byte_count: int) -> None:
        """Releases that many bytes of it."""
        if not self._is_released:
            self._budget.give(byte_count)
            self._held_bytes -= byte_count

    def release(self) -> None:
        """Releases all of it for good."""
        self._is_released = True
        self._budget.give(self._held_bytes)
        self._held_bytes = 0


class AnswerBudget:
    """Limits the contents of one answer, or of the answers of one batch together.

    Contents are taken from here before they are used, so no caller makes us hold more.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        """Uses MAX_ANSWER_CONTENT_BYTES unless a limit is given."""
        self._limit_bytes = MAX_ANSWER_CONTENT_BYTES if limit_bytes is None else limit_bytes
        self._left_bytes = self._limit_bytes
        # Answers that read side by side could each take a part, and then none would fit.
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def taking(
        self, *, content_included: bool = True, encodings_included: bool = False
    ) -> "AsyncIterator[Taking]":
        """Yields a Taking to one answer after the other; releases its bytes if the block fails."""
        async with self._turn:
            taking = Taking(
                self, content_included=content_included, encodings_included=encodings_included
            )
            try:
                yield taking
            except BaseException:
                self._left_bytes += taking.taken_bytes
                raise

    def take(self, byte_count: int) -> None:
        """Takes that many bytes; raises AnswerTooLarge if fewer are left."""
        if byte_count > self._left_bytes:
            raise AnswerTooLarge(limit=self._limit_bytes)
        self._left_bytes -= byte_count


class Taking:
    """Takes bytes for one answer."""

    def __init__(
        self, budget: AnswerBudget, *, content_included: bool, encodings_included: bool
    ) -> None:
        self._budget = budget
        self.content_included = content_included
        """Or else the answer has the items' attributes alone."""
        self.encodings_included = encodings_included
        self.taken_bytes = 0

    async def reserve(self, byte_count: int) -> None:
        """Reserves the bytes among all answers before they are read; raises Overloaded.

        Does nothing outside a call that holds a budget.
        """
        if (hold := _current_hold.get()) is not None:
            await hold.take(byte_count)

    def take(self, byte_count: int, reserved_bytes: int = 0) -> None:
        """Takes the bytes that were read, after a reservation or not; raises AnswerTooLarge."""
        if reserved_bytes and (hold := _current_hold.get()) is not None:
            hold.give(reserved_bytes - byte_count)
        self._budget.take(byte_count)
        self.taken_bytes += byte_count
