"""Threads are shared by callers: one alone has them all, and none can keep them from others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tandem.chassis.access.callers import CALLER_KEY, asking_caller, bind_asking_caller
from tandem.chassis.access.headers import bind_headers
from tandem.chassis.capacity.caller_turns import CallerTurns

T = TypeVar("T")

THREADS = 4
ONE_AT_A_TIME_BYTES = 300_000_000


class Bench:
    """Works that last until they are let go, by the caller that asks for them."""

    def __init__(self, turns: CallerTurns) -> None:
        self.turns = turns
        self.begun: list[str] = []
        self.gates: dict[str, threading.Event] = {}

    def ask(self, caller: str, name: str, byte_count: int = 0) -> asyncio.Task[str]:
        gate = self.gates[name] = threading.Event()

        def work() -> str:
            self.begun.append(name)
            assert gate.wait(10)
            return name

        return asyncio.create_task(as_caller(caller, lambda: self.turns.run(work, byte_count)))

    async def end(self, *names: str) -> None:
        for name in names:
            self.gates[name].set()
        await self.settled()

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0.002)


async def as_caller(caller: str, work: Callable[[], Awaitable[T]]) -> T:
    bind_headers([(CALLER_KEY, caller)])
    bind_asking_caller("10.0.0.1", is_internal=True)
    return await work()


@contextmanager
def bench() -> Iterator[Bench]:
    with ThreadPoolExecutor(THREADS) as threads:
        made = Bench(CallerTurns(threads, THREADS))
        try:
            yield made
        finally:
            for gate in made.gates.values():
                gate.set()


async def test_a_caller_alone_has_every_thread() -> None:
    with bench() as at:
        asked = [at.ask("one", f"{number}") for number in range(THREADS + 1)]
        await at.settled()

        assert len(at.begun) == THREADS
        await at.end(*at.gates)
        assert await asyncio.gather(*asked) == [f"{number}" for number in range(THREADS + 1)]


async def test_a_caller_has_half_of_the_threads_while_another_asks() -> None:
    with bench() as at:
        at.ask("other", "small")
        await at.end("small")
        for number in range(8):
            at.ask("one", f"{number}")
        await at.settled()
        assert at.begun[1:] == ["0", "1"]

        later = at.ask("other", "later")
        await at.end("later")

        assert later.done()
        assert at.begun[1:] == ["0", "1", "later"]


async def test_callers_take_turns_however_much_each_asks() -> None:
    with bench() as at:
        for number in range(THREADS):
            at.ask("one", f"first {number}")
        await at.settled()
        for number in range(8):
            at.ask("one", f"one {number}")
        at.ask("two", "two")
        at.ask("three", "three")

        await at.end("first 0")
        await at.end("first 1")

        assert at.begun[THREADS:] == ["two", "three"]


async def test_large_work_of_one_caller_runs_one_at_a_time() -> None:
    with bench() as at:
        at.ask("one", "large", ONE_AT_A_TIME_BYTES)
        at.ask("one", "larger", ONE_AT_A_TIME_BYTES)
        at.ask("two", "another's", ONE_AT_A_TIME_BYTES)
        await at.settled()
        assert at.begun == ["large", "another's"]

        await at.end("large")

        assert at.begun == ["large", "another's", "larger"]


async def test_cancelled_work_does_not_start() -> None:
    with bench() as at:
        for number in range(THREADS):
            at.ask("one", f"{number}")
        given_up = at.ask("one", "given up")
        await at.settled()

        given_up.cancel()
        at.ask("one", "next")
        await at.end("0")

        assert at.begun[THREADS:] == ["next"]


async def test_an_error_is_raised_and_frees_the_thread() -> None:
    def fail() -> None:
        raise LookupError("a fault")

    with bench() as at:
        for _ in range(2 * THREADS):
            with pytest.raises(LookupError):
                await at.turns.run(fail)


async def test_only_internal_methods_accept_a_callers_name() -> None:
    async def name(told: str | None, *, is_internal: bool) -> str:
        bind_headers([] if told is None else [(CALLER_KEY, told)])
        bind_asking_caller("10.0.0.1", is_internal=is_internal)
        return asking_caller()

    async def named(told: str | None, *, is_internal: bool = False) -> str:
        return await asyncio.create_task(name(told, is_internal=is_internal))

    assert await named("a", is_internal=True) != await named("b", is_internal=True)
    assert await named("a") == await named("b") == await named(None)


async def test_floods_of_many_callers_delay_another_by_two_turns_each_at_most() -> None:
    with bench() as at:
        floods = [f"flood {number}" for number in range(8)]
        for number in range(6):
            for caller in floods:
                at.ask(caller, f"{caller}: {number}")
        await at.settled()
        at.ask("little", "little")

        for _ in range(2 * len(floods)):
            running = [name for name in at.begun if not at.gates[name].is_set()]
            await at.end(running[0])

        assert "little" in at.begun
