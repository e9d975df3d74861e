"""Fanning out: all results in order, or the first failure and nothing left running."""

import asyncio

import pytest

from tandem.search.calls.fan_out import fan_out


async def test_results_have_the_order_of_the_calls() -> None:

    async def answer(number: int) -> int:
        await asyncio.sleep(0.01 * (3 - number))
        return number

    assert await fan_out(*(answer(number) for number in range(3))) == [0, 1, 2]


async def test_one_call_alone_has_its_result_or_its_error() -> None:

    async def answer(error: Exception | None) -> str:
        if error is not None:
            raise error
        return "answered"

    assert await fan_out(answer(None)) == ["answered"]
    with pytest.raises(KeyError, match="its own"):
        await fan_out(answer(KeyError("its own")))


async def test_calls_run_side_by_side() -> None:
    """Each waits for all the others, so one after another would never end."""
    barrier = asyncio.Barrier(3)

    async with asyncio.timeout(60):
        await fan_out(*(barrier.wait() for _ in range(3)))


async def test_the_first_failure_is_raised_unchanged() -> None:
    """Not in a group, and not the error that cancelling the others causes."""

    async def fail(seconds: float, error: Exception) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            raise ValueError("while being cancelled") from None
        raise error

    first = KeyError("first")
    with pytest.raises(KeyError) as caught:
        await fan_out(fail(10, OSError()), fail(0.01, first), fail(10, OSError()))

    assert caught.value is first


async def test_a_failure_cancels_the_others() -> None:
    """No shard works for an answer that is not wanted any more."""
    ended = []

    async def wait(name: str) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(name)

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise KeyError

    with pytest.raises(KeyError):
        await fan_out(wait("a"), fail(), wait("b"))

    assert sorted(ended) == ["a", "b"]


async def test_being_cancelled_cancels_all() -> None:
    """The caller's cancellation is passed on and raised as itself."""
    ended = []

    async def wait() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(1)

    task = asyncio.create_task(fan_out(wait(), wait()))
    await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1, 1]
