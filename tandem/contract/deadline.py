"""Defines the deadline of a call and of the work that it causes."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tandem.errors import DeadlineExceeded

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """Names the instant, on the monotonic clock, by which work must be done."""

    end_time: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """Returns the deadline that is so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def of_call(
        cls,
        context: "grpc.aio.ServicerContext",
        *,
        default_seconds: float,
        max_seconds: float = math.inf,
    ) -> Self:
        """Returns the caller's deadline, or one of `default_seconds` if the caller set none.

        Raises DeadlineExceeded if it has passed: the caller no longer waits, so no work starts.
        """
        seconds: float | None = context.time_remaining()
        if seconds is None:
            seconds = default_seconds
        elif seconds <= 0:
            raise DeadlineExceeded(what="the call before this work began")
        return cls.after(min(seconds, max_seconds))

    def left(self) -> float:
        """Returns the seconds left, negative once the deadline has passed."""
        return self.end_time - time.monotonic()

    def left_for(self, what: str) -> float:
        """Returns the seconds left; raises DeadlineExceeded, naming `what`, if there are none."""
        if (seconds := self.left()) <= 0:
            raise DeadlineExceeded(what=what)
        return seconds

    @asynccontextmanager
    async def kept(self, what: str) -> AsyncIterator[None]:
        """Ends the block's work at the deadline; raises DeadlineExceeded, naming `what`."""
        try:
            async with asyncio.timeout(self.left()):
                yield
        except TimeoutError:
            raise DeadlineExceeded(what=what) from None

    def earlier(self, seconds: float) -> "Deadline":
        """Returns the deadline that many seconds before this one."""
        return Deadline(self.end_time - seconds)
