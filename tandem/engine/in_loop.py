"""Runs calls in the engine's event loop, within their time."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias, TypeVar

from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.query import SearchQuery
from tandem.search.orchestrator import Orchestrator

T = TypeVar("T")
_CALL = "the call of the engine"
Call: TypeAlias = Callable[[Orchestrator, Deadline], Awaitable[T]]
StreamedCall: TypeAlias = Callable[[Orchestrator], AsyncGenerator[T, None]]


async def in_time(call: Call[T], orchestrator: Orchestrator, seconds: float) -> T:
    """Returns what the call returns; raises DeadlineExceeded."""
    deadline = Deadline.after(seconds)
    async with deadline.kept(_CALL):
        return await call(orchestrator, deadline)


async def answers_in_time(
    orchestrator: Orchestrator, query: SearchQuery, seconds: float
) -> AsyncGenerator[SearchResult, None]:
    """Yields both answers of a stream; raises DeadlineExceeded."""
    deadline = Deadline.after(seconds)
    async with deadline.kept(_CALL), aclosing(orchestrator.stream(query, deadline)) as answers:
        async for answer in answers:
            yield answer
