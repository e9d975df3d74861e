"""Limits how many pairs of one process are in Triton.

Triton runs every request, even if its caller has given up (decision 29). A request that waits here
instead is not sent once its caller is gone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from tandem.errors import DeadlineExceeded, Overloaded

T = TypeVar("T")

# The limit of waiting chunks, as in Triton's queue.
_MAX_WAITING_COUNT = 256


class PairWindow:
    """Admits chunks of pairs in order of arrival. For one event loop."""

    def __init__(self, max_pair_count: int) -> None:
        self._max_pair_count = max_pair_count
        self._pair_count = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_busy(self) -> bool:
        """Returns whether the model has work for long enough that halves of a call would wait."""
        return 2 * self._pair_count >= self._max_pair_count

    async def run(
        self, pair_count: int, timeout_seconds: float, send: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Returns what `send` returns, once there is room for so many pairs.

        An empty window has room for any number. If a caller gives up, its sent chunk keeps its room
        until it ends: Triton still computes it, and would otherwise get another chunk that is about
        to be abandoned. Raises Overloaded if too many chunks wait already, and DeadlineExceeded.
        """
        await self._take(pair_count, timeout_seconds)
        sending = asyncio.ensure_future(send())
        sending.add_done_callback(partial(self._note_end, pair_count))
        return await asyncio.shield(sending)

    async def _take(self, pair_count: int, timeout_seconds: float) -> None:
        if not self._waiting and self._fits(pair_count):
            self._pair_count += pair_count
            return
        if len(self._waiting) >= _MAX_WAITING_COUNT:
            raise Overloaded(
                what=f"{len(self._waiting)} chunks of pairs wait for the model already"
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((pair_count, turn))
        try:
            async with asyncio.timeout(timeout_seconds):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.cancelled():
                self._let_in()
            else:  # admitted at the same moment
                self._give_back(pair_count)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(what="the wait for the cross-encoder") from error
            raise

    def _fits(self, pair_count: int) -> bool:
        return not self._pair_count or self._pair_count + pair_count <= self._max_pair_count

    def _note_end(self, pair_count: int, sending: asyncio.Future[Any]) -> None:
        if not sending.cancelled():
            sending.exception()  # or asyncio warns that the exception was never retrieved
        self._give_back(pair_count)

    def _give_back(self, pair_count: int) -> None:
        self._pair_count -= pair_count
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            pair_count, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(pair_count):
                    return
                self._pair_count += pair_count
                turn.set_result(None)
            self._waiting.popleft()
