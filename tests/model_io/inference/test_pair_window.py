"""tandem.model_io.inference.pair_window: pairs of callers that gave up are never sent."""

from __future__ import annotations

import asyncio

import pytest

from tandem.errors import DeadlineExceeded, Overloaded
from tandem.model_io.inference.pair_window import PairWindow


class Chunks:
    """Chunks that each hold the window until they are let go."""

    def __init__(self, window: PairWindow) -> None:
        self.window = window
        self.sent: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    async def start(
        self, name: str, pair_count: int, timeout_seconds: float = 60.0
    ) -> asyncio.Future[None]:
        """Returns the chunk's task once it has been sent or waits."""
        self._ends[name] = asyncio.Event()

        async def send() -> None:
            self.sent.append(name)
            await self._ends[name].wait()

        task = asyncio.ensure_future(self.window.run(pair_count, timeout_seconds, send))
        await settled()
        return task

    async def end(self, *names: str) -> None:
        """Answers these."""
        for name in names:
            self._ends[name].set()
        await settled()


async def settled() -> None:
    """Gives every task that can continue its turns."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_window_is_busy_from_half_of_its_pairs_on() -> None:
    chunks = Chunks(PairWindow(10))
    assert not chunks.window.is_busy
    await chunks.start("small", 4)
    assert not chunks.window.is_busy
    await chunks.start("one more", 1)
    assert chunks.window.is_busy
    await chunks.end("small", "one more")
    assert not chunks.window.is_busy


async def test_chunks_are_sent_in_their_order_as_there_is_room() -> None:
    chunks = Chunks(PairWindow(10))
    for name, pair_count in (("a", 6), ("b", 6), ("c", 2), ("d", 30), ("e", 1)):
        await chunks.start(name, pair_count)
    assert chunks.sent == ["a"]
    await chunks.end("a")
    assert chunks.sent == ["a", "b", "c"]
    await chunks.end("b")
    assert chunks.sent == ["a", "b", "c"]
    await chunks.end("c")
    assert chunks.sent == ["a", "b", "c", "d"]
    await chunks.end("d")
    assert chunks.sent == ["a", "b", "c", "d", "e"]
    await chunks.end("e")


async def test_abandoned_pairs_are_not_sent() -> None:
    chunks = Chunks(PairWindow(10))
    first = await chunks.start("a", 10)
    waiting = [await chunks.start(name, 10) for name in "bcd"]
    for task in waiting[:2]:
        task.cancel()
    await settled()
    await chunks.end("a")
    assert chunks.sent == ["a", "d"]
    await chunks.end("d")
    await asyncio.gather(first, *waiting, return_exceptions=True)


async def test_a_cancellation_at_any_turn_leaves_the_window_empty() -> None:
    for turn_count in range(6):
        chunks = Chunks(PairWindow(10))
        await chunks.start("a", 10)
        second = await chunks.start("b", 10)
        chunks._ends["a"].set()
        for _ in range(turn_count):
            await asyncio.sleep(0)
        second.cancel()
        await chunks.end("b")
        await chunks.start("c", 10)
        assert "c" in chunks.sent
        await chunks.end("c")


async def test_sent_pairs_hold_their_place_until_answered() -> None:
    chunks = Chunks(PairWindow(10))
    sent = await chunks.start("a", 10)
    waiting = await chunks.start("b", 10)
    sent.cancel()
    await settled()
    assert sent.cancelled()
    assert chunks.sent == ["a"]
    waiting.cancel()
    await chunks.end("a")
    await chunks.start("c", 10)
    assert chunks.sent == ["a", "c"]
    await chunks.end("c")


async def test_a_chunk_waits_no_longer_than_it_has_time() -> None:
    chunks = Chunks(PairWindow(10))
    await chunks.start("a", 8)
    late = await chunks.start("b", 8, timeout_seconds=0.01)
    await chunks.start("c", 2)
    with pytest.raises(DeadlineExceeded):
        await late
    await settled()
    assert chunks.sent == ["a", "c"]
    await chunks.end("a", "c")


async def test_too_many_that_wait_are_refused() -> None:
    chunks = Chunks(PairWindow(1))
    await chunks.start("a", 1)
    waiting = [await chunks.start(f"w{number}", 1) for number in range(256)]
    with pytest.raises(Overloaded):
        await (await chunks.start("z", 1))
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await chunks.end("a")
