"""Moves items from LMDB to Postgres or Milvus and back, under writes."""

import asyncio
from hashlib import blake2b
from pathlib import Path

import pytest

from tandem.errors import ServiceUnavailable
from tests.support.engines.milvus_server import shared_milvus
from tests.support.engines.postgres import PASSWORD, shared_postgres
from tests.support.item_store.made_items import text_item
from tests.support.move.moving_shards import mover, shards, write_until

VERSION_2, VERSION_3 = {"SHARD_MAP_VERSION": 2}, {"SHARD_MAP_VERSION": 3}


def settings_of(engine: str, folder: Path) -> dict[str, object]:
    """Returns index_svc's settings for an engine; namespace and records are the folder's own."""
    url = (
        shared_postgres().url(PASSWORD)
        if engine == "pgvector"
        else f"http://{shared_milvus().address}?objects=file://{folder / 'records'}"
    )
    namespace = "n" + blake2b(str(folder).encode(), digest_size=8).hexdigest()
    return {"ENGINE": engine, "ENGINE_URL": url, "ENGINE_NAMESPACE": namespace}


@pytest.fixture(params=["pgvector", "milvus"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    if request.param == "milvus":
        pytest.importorskip("pymilvus", reason="make test-engines")
    return settings_of(request.param, tmp_path)


async def test_items_go_to_an_engine_and_back_while_they_are_written(
    settings: dict[str, object], tmp_path: Path
) -> None:
    async with (
        shards(tmp_path / "from", 2) as first,
        shards(tmp_path / "engine", 1, settings | VERSION_2) as engine,
        shards(tmp_path / "to", 2, VERSION_3) as last,
    ):
        await first.store([text_item(f"item-{n:04}", n) for n in range(200)])
        await first.store([text_item("gone")], "empty")
        await first.delete(["gone"], "empty")
        for number, (sources, targets) in enumerate(((first, engine), (engine, last))):
            done = asyncio.Event()
            writing = asyncio.create_task(write_until(done, sources))

            await mover(sources, targets, tmp_path / f"progress-{number}").move()

            done.set()
            for writer in sources.writers:
                writer.is_left = True
            with pytest.raises(ServiceUnavailable):
                await writing
            contents = await targets.contents()
            expected = await sources.contents()
            # Milvus may have stored a write that the last fence then refused.
            for each in (contents, expected):
                each["scenes"].pop(sources.in_flight, None)
            assert contents == expected
            assert set(contents) == {"scenes", "empty"}


async def test_an_index_may_be_dropped_in_an_engine_and_come_back(
    settings: dict[str, object], tmp_path: Path
) -> None:
    """Its change log has one entry for all items, which the targets lose then."""
    async with (
        shards(tmp_path / "engine", 1, settings) as engine,
        shards(tmp_path / "to", 2, VERSION_2) as targets,
    ):
        await engine.store([text_item(f"item-{n}", n) for n in range(100)])
        moving = mover(engine, targets, tmp_path / "progress")
        await moving.copy()
        await engine.drop("scenes")
        fresh = [text_item(f"item-{n}", n, dimension=16) for n in range(50, 60)]
        await engine.store(fresh, fingerprint="another-model")

        await moving.move()

        contents = await targets.contents()
        assert contents == await engine.contents()
        assert len(contents["scenes"]) == 10


async def test_a_fence_in_an_engine_holds_every_process_of_the_shard(
    settings: dict[str, object], tmp_path: Path
) -> None:
    """It ends by itself, and a seal does not."""
    async with (
        shards(tmp_path / "one", 1, settings) as one,
        shards(tmp_path / "two", 1, settings) as two,
    ):
        await one.store([text_item("a")])
        fence = await one.links[0].fence(0.5)
        two.writers[0].is_left = True
        with pytest.raises(ServiceUnavailable, match="being moved"):
            await two.store([text_item("b")])
        await one.store([text_item("c")])  # waits

        assert not (await one.links[0].fence(0, fence.sequence)).is_sealed
        another = await one.links[0].fence(5)
        assert (await one.links[0].fence(0, another.sequence)).is_sealed
        with pytest.raises(ServiceUnavailable, match="being moved"):
            await two.drop("scenes")
        assert not (await one.links[0].fence(0)).is_sealed
        await two.store([text_item("b")])
        assert set((await two.contents())["scenes"]) == {"a", "b", "c"}
