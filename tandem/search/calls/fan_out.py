"""Awaits several calls at once, and takes errors for answers."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from tandem.errors import TandemError

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


async def answer_or_error(call: Awaitable[T], *kinds: type[TandemError]) -> T | TandemError:
    """Returns the call's answer, or its error if that is of one of the `kinds`."""
    try:
        return await call
    except kinds as error:
        return error.kept()
