"""tandem.engine.loop_thread: what callers get while it ends, from threads and from event loops."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tandem.engine.loop_thread import LoopThread


async def forever(begun: threading.Event) -> None:
    """Waits until it is cancelled."""
    begun.set()
    await asyncio.sleep(3600)


def test_closing_fails_a_running_call_with_a_message() -> None:
    """CancelledError was all that its thread got, without a word."""
    thread, begun = LoopThread("test"), threading.Event()
    with ThreadPoolExecutor() as callers:
        call = callers.submit(thread.run, forever(begun))
        assert begun.wait(60)
        thread.close()

        with pytest.raises(ValueError, match="this Engine is closed: open its folder again"):
            call.result(60)


def test_a_call_after_close_is_refused() -> None:
    """As one that a caller began before it."""
    thread = LoopThread("test")
    thread.close()

    with pytest.raises(ValueError, match="this Engine is closed"):
        thread.run(forever(threading.Event()))


def test_concurrent_calls_end_with_close() -> None:
    """A call that came between the last look and the end of the loop would wait for ever."""

    def call_until_closed(thread: LoopThread) -> str:
        try:
            while True:
                thread.run(asyncio.sleep(0))
        except ValueError as error:
            return str(error)

    for _ in range(20):
        thread = LoopThread("test")
        with ThreadPoolExecutor(8) as callers:
            calls: list[Future[str]] = [callers.submit(call_until_closed, thread) for _ in range(8)]
            thread.close()
            told = {call.result(60) for call in calls}
        assert told == {"this Engine is closed: open its folder again"}


async def test_closing_does_not_cancel_a_waiting_task() -> None:
    """An `asyncio.CancelledError` would end the caller's task, although nothing cancelled it."""
    thread, begun = LoopThread("test"), threading.Event()
    call = asyncio.create_task(thread.awaited(forever(begun)))
    assert await asyncio.to_thread(begun.wait, 60)
    await asyncio.to_thread(thread.close)

    with pytest.raises(ValueError, match="this Engine is closed"):
        await call


async def test_a_cancelled_caller_gets_cancelled_error() -> None:
    thread, begun = LoopThread("test"), threading.Event()
    call = asyncio.create_task(thread.awaited(forever(begun)))
    assert await asyncio.to_thread(begun.wait, 60)
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(thread.close)
