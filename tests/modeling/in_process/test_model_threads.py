"""Work in threads: its result, its error, and what happens to work without a caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tandem.modeling.in_process.model_threads import ModelThreads


@pytest.fixture(name="threads")
def _threads() -> Iterator[ModelThreads]:
    one = ModelThreads(1, "one")
    yield one
    one.close()


async def test_results_and_errors_are_returned(threads: ModelThreads) -> None:
    assert await threads.run(lambda: threading.current_thread().name) == "one_0"
    with pytest.raises(KeyError, match="lost"):
        await threads.run(lambda: {}["lost"])
    assert threads.submit(lambda: 3).result() == 3
    with pytest.raises(KeyError, match="lost"):
        threads.submit(lambda: {}["lost"]).result()


async def test_queued_work_is_dropped_with_its_caller(threads: ModelThreads) -> None:
    is_begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        is_begun.set()
        may_end.wait()
        done.append("first")

    tasks = [
        asyncio.create_task(threads.run(first)),
        asyncio.create_task(threads.run(lambda: done.append("second"))),
    ]
    await asyncio.to_thread(is_begun.wait)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    may_end.set()
    await threads.run(lambda: done.append("third"))

    assert done == ["first", "third"]


def test_a_program_may_end_without_closing_them(threads: ModelThreads) -> None:
    threads.close()
    threads.close()
    assert not threads.submit(lambda: 1).done()
