"""An operator sees how long an engine's calls take, who waits, and how far a standby is behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from index_svc.settings import IndexSettings
from tandem import errors
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.remote.pgvector.shard import PgvectorShard
from tandem.stages.item_write import Upsert
from tandem.stages.retrieval import ShardQuery
from tests.support.engines.milvus_shard import milvus_shard
from tests.support.engines.postgres import Postgres, running_postgres
from tests.support.item_store.made_items import FINGERPRINT, text_item, unit_vector

INDEX = "scenes"


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    with running_postgres(tmp_path / "postgres") as server:
        yield server


@asynccontextmanager
async def opened(postgres: Postgres) -> AsyncIterator[PgvectorShard]:
    """Yields a shard with two connections and one item."""
    settings = IndexSettings(
        shard_number=0,
        shard_count=1,
        engine="pgvector",
        engine_url=postgres.url(),
        engine_connection_count=2,
    )
    shard = PgvectorShard(settings)
    await shard.open()
    try:
        await shard.write(Upsert(INDEX, FINGERPRINT, [text_item("a", 1)]), Deadline.after(30))
        yield shard
    finally:
        await shard.close()


def query(sequence: int = 0) -> ShardQuery:
    return ShardQuery(
        INDEX,
        FINGERPRINT,
        Modality.TEXT,
        Modality.IMAGE,
        1,
        [unit_vector(1)],
        minimum_sequence=sequence,
    )


def call_count(operation: str, outcome: str = "OK") -> float:
    labels = {"operation": operation, "outcome": outcome}
    return REGISTRY.get_sample_value("tandem_engine_call_duration_seconds_count", labels) or 0.0


def inflight(operation: str) -> float:
    labels = {"operation": operation}
    return REGISTRY.get_sample_value("tandem_engine_calls_inflight_count", labels) or 0.0


async def test_calls_of_postgres_are_counted_by_outcome_and_those_that_wait(
    postgres: Postgres,
) -> None:
    """Of five searches into a server that hangs, two have the connections and three wait."""
    async with opened(postgres) as shard:
        done = call_count("search"), call_count("search", "DEADLINE_EXCEEDED")
        await shard.search(query(), Deadline.after(30))
        postgres.pause()
        try:
            searches = [
                asyncio.create_task(shard.search(query(), Deadline.after(1))) for _ in range(5)
            ]
            await asyncio.sleep(0.5)
            assert (inflight("search"), inflight("connection")) == (5, 3)
            for search in searches:
                with pytest.raises(errors.DeadlineExceeded, match="Postgres' search"):
                    await search
            assert inflight("search") == 0
        finally:
            postgres.resume()
        assert call_count("search") == done[0] + 1
        assert call_count("search", "DEADLINE_EXCEEDED") == done[1] + 5
        postgres.kill()
        with pytest.raises(errors.ServiceUnavailable):
            await shard.check()
        assert call_count("check", "SERVICE_UNAVAILABLE") > 0
    postgres.start()


async def test_a_standby_that_stands_still_is_behind(postgres: Postgres) -> None:
    def lag_bytes() -> float | None:
        return REGISTRY.get_sample_value("tandem_engine_standby_lag_bytes", {"standby": "copy"})

    async with opened(postgres) as shard:
        await shard.check()
        assert lag_bytes() is None
        standby = postgres.standby("copy")
        standby.start()
        try:
            async with asyncio.timeout(30):
                while lag_bytes() != 0.0:
                    await shard.check()
            standby.pause()
            items = [text_item(f"{n}", n) for n in range(64)]
            await shard.write(Upsert(INDEX, FINGERPRINT, items), Deadline.after(30))
            await shard.check()
            assert (lag_bytes() or 0.0) > 64 * 100
        finally:
            standby.resume()
            standby.stop()
        async with asyncio.timeout(30):
            while lag_bytes() is not None:  # It is gone.
                await shard.check()


async def test_calls_of_milvus_that_wait_for_a_write_are_counted_by_themselves(
    tmp_path: Path,
) -> None:
    pytest.importorskip("milvus", reason="make test-engines installs Milvus")
    async with milvus_shard(tmp_path / "shard") as shard:
        names = ("search_as_of", "search", "upsert", "object")
        done = {name: call_count(name) for name in names}
        write = Upsert(INDEX, FINGERPRINT, [text_item("a", 1)])
        sequence = (await shard.write(write, Deadline.after(60))).sequence
        await shard.search(query(sequence), Deadline.after(60))

        # A note and a record are stored, and the state of a move is read before and after.
        assert [call_count(name) - done[name] for name in names] == [1, 0, 1, 4]
