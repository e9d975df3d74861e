"""How many bytes of contents answers have room for: each by itself, and all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from tandem.errors import AnswerTooLarge, Overloaded

MAX_ANSWER_CONTENT_BYTES = 48 * 2**20
"""A message has 64 MiB; the rest is for ids, scores and the cursor."""

MAX_HELD_CONTENT_BYTES = 256 * 2**20
"""Of all answers under way: each is there up to three times, read, as a message and as its bytes,
and a container has 2 GiB."""

_WAIT_SECONDS = 0.25
"""For room among the answers under way; longer waits of those that hold some could wait for one
another."""

_current_hold: ContextVar[ContentHold | None] = ContextVar("content_hold", default=None)


class Call(Protocol):
    """A call that is being served."""

    def add_done_callback(self, callback: Any) -> None:  # noqa: ANN401 (gRPC's)
        """Has the callback called with the call once its answer is sent, or nobody wants it."""


class ContentBudget:
    """The contents that all answers under way may hold together."""

    def __init__(self, limit_bytes: int = MAX_HELD_CONTENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def held_bytes(self) -> int:
        """What is held now."""
        return self._limit_bytes - self._left_bytes

    def hold_for(self, call: Call) -> None:
        """Has what is read from here on in this task, and in those that it makes, held for a call.

        Until that has ended: its answer may wait long for a caller who reads slowly.
        """
        hold = ContentHold(self)
        call.add_done_callback(lambda _: hold.release())
        _current_hold.set(hold)

    async def take(self, byte_count: int) -> None:
        """Takes so much; raises Overloaded where it does not come free in a moment."""
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
                    what=f"answers under way hold {self.held_bytes:,} bytes of contents"
                ) from None
            finally:
                self._waiting.discard(freed)
        self._left_bytes -= byte_count

    def give(self, byte_count: int) -> None:
        """Gives back so much; a negative number takes, though there be less."""
        self._left_bytes += byte_count
        for freed in self._waiting:
            if not freed.done():
                freed.set_result(None)


class ContentHold:
    """What one call holds of the budget."""

    def __init__(self, budget: ContentBudget) -> None:
        self._budget = budget
        self._held_bytes = 0
        self._is_released = False

    async def take(self, byte_count: int) -> None:
        """As ContentBudget.take, until the call ends."""
        await self._budget.take(byte_count)
        self._held_bytes += byte_count
        if self._is_released:  # while this waited
            self.release()

    def give(self, byte_count: int) -> None:
        """Gives back so much of it."""
        if not self._is_released:
            self._budget.give(byte_count)
            self._held_bytes -= byte_count

    def release(self) -> None:
        """Gives back all of it, for good."""
        self._is_released = True
        self._budget.give(self._held_bytes)
        self._held_bytes = 0


class ContentRoom:
    """Room for the contents of one answer, or of the answers of one batch together.

    Whatever is read is taken first from here, so that no caller makes us hold more than this.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        """Of MAX_ANSWER_CONTENT_BYTES unless told."""
        self._limit_bytes = MAX_ANSWER_CONTENT_BYTES if limit_bytes is None else limit_bytes
        self._left_bytes = self._limit_bytes

    @contextmanager
    def taking(self) -> Iterator[Taking]:
        """Yields what takes from the room; all that it took is given back where the block fails."""
        taking = Taking(self)
        try:
            yield taking
        except BaseException:
            self._left_bytes += taking.taken_bytes
            raise

    def take(self, byte_count: int) -> None:
        """Takes so much of it; raises AnswerTooLarge where it is not left."""
        if byte_count > self._left_bytes:
            raise AnswerTooLarge(limit=self._limit_bytes)
        self._left_bytes -= byte_count


class Taking:
    """One answer's taking of room."""

    def __init__(self, room: ContentRoom) -> None:
        self._room = room
        self.taken_bytes = 0

    async def reserve(self, byte_count: int) -> None:
        """Makes sure, before so much is read, that all answers together have room for it.

        Raises Overloaded. Nothing is done where the call holds no budget.
        """
        if (hold := _current_hold.get()) is not None:
            await hold.take(byte_count)

    def take(self, byte_count: int, reserved_bytes: int = 0) -> None:
        """Takes what was read, of which so much was reserved; raises AnswerTooLarge."""
        if reserved_bytes and (hold := _current_hold.get()) is not None:
            hold.give(reserved_bytes - byte_count)
        self._room.take(byte_count)
        self.taken_bytes += byte_count
