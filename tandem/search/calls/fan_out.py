"""Awaits several calls at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def fan_out(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Returns the calls' results, in their order.

    If one fails, the others are cancelled and its error is raised as it is: the caller needs the
    first cause, not a group of consequences.
    """
    if len(calls) < 2:
        return [await call for call in calls]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
