"""Runs calls in the engine's event loop, within their time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias, TypeVar

from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.query import SearchQuery
from tandem.errors import DeadlineExceeded
from tandem.search.orchestrator import Orchestrator

T = TypeVar("T")
Call: TypeAlias = Callable[[Orchestrator, Deadline], Awaitable[T]]
StreamedCall: TypeAlias = Callable[[Orchestrator], AsyncGenerator[T, None]]


async def in_time(
    call: Call[T],
    orchestrator: Orchestrator,
    seconds: float,
) -> T:
    """Returns what the call returns; raises DeadlineExceeded."""
    try:
        async with asyncio.timeout(seconds):
            return await call(orchestrator, Deadline.after(seconds))
    except TimeoutError as error:
        raise DeadlineExceeded(what="the call of the engine") from error


async def answers_in_time(
    orchestrator: Orchestrator, query: SearchQuery, seconds: float
) -> AsyncGenerator[SearchResult, None]:
    """Yields both answers of a stream; raises DeadlineExceeded."""
    try:
        async with (
            asyncio.timeout(seconds),
            aclosing(orchestrator.stream(query, Deadline.after(seconds))) as answers,
        ):
            async for answer in answers:
                yield answer
    except TimeoutError as error:
        raise DeadlineExceeded(what="the call of the engine") from error


async def as_it_is(batch: T) -> T:
    """Returns the batch, which is no message to read."""
    return batch
