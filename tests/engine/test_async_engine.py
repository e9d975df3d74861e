"""An engine for programs with an event loop: the answers of the other one, from the same folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from tandem import AsyncEngine, Engine
from tandem.client import Client, Item
from tandem.model_io.repository.manifest import Manifest
from tandem.stack.start_refused import StartRefused
from tests.support.client.search_forms import INDEX, assert_same, forms, said
from tests.support.client.waiting_client import WaitingClient
from tests.support.pictures.pictures import encoded, noise

TEXT = "two dogs left of one umbrella"
TOLERANCE = 1e-6


def items(count: int) -> list[Item]:
    """Returns so many pictures and texts with attributes."""
    colours = ("red", "green", "blue")
    return [
        *(
            Item(
                f"picture-{n}",
                image=encoded(noise(n), "PNG"),
                attributes={"colour": colours[n % 3], "number": n},
            )
            for n in range(count)
        ),
        *(Item(f"text-{n}", text=f"{n} dogs left of one umbrella") for n in range(count)),
    ]


@pytest.fixture(name="async_engine")
async def _async_engine(tmp_path: Path, tiny_repository: Path) -> AsyncIterator[AsyncEngine]:
    folder = tmp_path / "engine"
    async with await asyncio.to_thread(AsyncEngine, folder, model=tiny_repository) as opened:
        yield opened


def test_it_answers_every_form_as_the_other_does(
    tmp_path: Path, tiny_repository: Path, tiny_manifest: Manifest
) -> None:
    """One after the other, from one folder."""
    picture = encoded(noise(3), "PNG")
    asked = forms(TEXT, picture, "picture-4", tiny_manifest)
    with Engine(tmp_path, model=tiny_repository, shards=2) as engine:
        assert all(each.error is None for each in engine.ingest(items(9), index_id=INDEX))
        own = {name: said(ask(engine)) for name, ask in asked.items()}

    with asyncio.Runner() as runner:
        other = AsyncEngine(tmp_path, model=tiny_repository)
        client = cast(Client, WaitingClient(other, runner))
        awaited = {name: said(ask(client)) for name, ask in asked.items()}
        runner.run(other.close())

    assert len(own) > 20
    for name, answer in own.items():
        assert_same(awaited[name], answer, TOLERANCE, name)
    # A comparison that finds nothing would not find this either.
    with pytest.raises(AssertionError):
        assert_same(awaited["words too"], own["a text"], TOLERANCE)


async def test_many_calls_run_concurrently(async_engine: AsyncEngine) -> None:
    """And the caller's event loop runs meanwhile."""
    outcomes = [each async for each in async_engine.ingest(items(3), index_id=INDEX)]
    assert [each.error for each in outcomes] == [None] * 6
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    found = await asyncio.gather(
        *(async_engine.search(f"{n} dogs", index_id=INDEX) for n in range(4))
    )
    counting.cancel()
    assert [len(each.items) for each in found] == [3] * 4
    assert turns > 1


async def test_the_folder_is_held_until_it_is_closed(
    async_engine: AsyncEngine, tmp_path: Path
) -> None:
    """A closed engine says so, and closing it twice is not an error."""
    with pytest.raises(StartRefused, match=r"another Engine \(process \d+\) serves"):
        AsyncEngine(tmp_path / "engine")
    await async_engine.close()
    await async_engine.close()
    with pytest.raises(ValueError, match="this Engine is closed: open its folder again"):
        await async_engine.search(TEXT, index_id=INDEX)
    Engine(tmp_path / "engine").close()
