"""Asks an `AsyncClient` from tests that were written for a `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tandem.client import AsyncClient


class WaitingClient:
    """Has the client's methods, each of which runs the event loop until its answer is there."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def ask(*arguments: object, **options: object) -> object:
            answer = method(*arguments, **options)
            if isinstance(answer, AsyncIterator):
                return self._runner.run(_listed(answer))
            return self._runner.run(_awaited(answer))

        return ask


async def _listed(answers: AsyncIterator[object]) -> list[object]:
    return [each async for each in answers]


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer
