"""What Postgres refuses, and a Postgres that is slow, gone, full or another's, has a name."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from index_svc.settings import IndexSettings
from tandem import errors
from tandem.contract.content import ImageContent, Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.filters import Filter, InRange, OneOf
from tandem.contract.search_path import SearchStrategy
from tandem.local.item_store.refused import StoreRefused
from tandem.remote.pgvector.candidates import PgvectorCandidates
from tandem.remote.pgvector.connections import Servers
from tandem.remote.pgvector.shard import PgvectorShard
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.notes import PutNote, SetWriter
from tandem.stages.reranking import ScoreQuery
from tandem.stages.retrieval import ShardQuery
from tests.support.engines.postgres import Postgres, running_postgres
from tests.support.faults.small_disk import SmallDisk
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item, unit_vector

INDEX = "scenes"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that the tests break."""
    with running_postgres(tmp_path_factory.mktemp("postgres") / "data") as server:
        yield server


def settings_of(postgres: Postgres, url: str = "", **changed: object) -> IndexSettings:
    settings = IndexSettings(
        shard_number=0, shard_count=1, engine="pgvector", engine_url=url or postgres.url()
    )
    return replace(settings, **changed)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(settings: IndexSettings) -> AsyncIterator[PgvectorShard]:
    shard = PgvectorShard(settings)
    try:
        await shard.open()
        yield shard
    finally:
        await shard.close()


def soon() -> Deadline:
    return Deadline.after(30.0)


def query(k: int = 10, where: Filter | None = None) -> ShardQuery:
    checked = None if where is None else checked_filter(filter_to_proto(where))
    return ShardQuery(
        INDEX, FINGERPRINT, Modality.TEXT, Modality.IMAGE, k, [unit_vector(1)], filter=checked
    )


async def store(shard: PgvectorShard, *items: ItemRecord, request_id: str = "") -> int:
    write = Upsert(INDEX, FINGERPRINT, items, request_id)
    return (await shard.write(write, soon())).sequence


async def refusal(settings: IndexSettings) -> str:
    with pytest.raises(errors.ServiceUnavailable) as caught:
        async with opened(settings):
            pass
    return caught.value.message


async def test_a_server_that_refuses_or_is_not_there_is_named_with_its_reason(
    postgres: Postgres,
) -> None:
    """The server of the tests is built without TLS, so that only its absence can be tried."""
    for url, why in {
        postgres.url(password="another"): "password authentication failed",
        postgres.url(database="nowhere"): 'database "nowhere" does not exist',
        postgres.url(options="?sslmode=require"): "server does not support SSL",
        "postgresql://127.0.0.1:1/tandem": "Connection refused",
    }.items():
        start_time = time.monotonic()
        message = await refusal(settings_of(postgres, url))
        assert why in message
        assert "None" not in message
        assert time.monotonic() - start_time < 3
    candidates = PgvectorCandidates(settings_of(postgres, engine_namespace="empty"), FINGERPRINT)
    with pytest.raises(errors.ServiceUnavailable, match="does not exist"):
        await candidates.open()
    await candidates.close()


async def test_a_user_who_may_only_read_is_enough_for_a_rerank(postgres: Postgres) -> None:
    async with opened(settings_of(postgres, engine_namespace="readable")) as shard:
        await store(shard, text_item("a", 7), text_item("b"))
    for statement in (
        "CREATE ROLE reader LOGIN PASSWORD 'made-up'",
        "GRANT USAGE ON SCHEMA readable TO reader",
        "GRANT SELECT ON ALL TABLES IN SCHEMA readable TO reader",
    ):
        postgres.execute(statement)
    url = postgres.url().replace("//tandem:", "//reader:")
    settings = settings_of(postgres, url, engine_namespace="readable")
    candidates = PgvectorCandidates(settings, FINGERPRINT)
    await candidates.open()

    versions = await candidates.versions(ScoreQuery(INDEX, FINGERPRINT), ["a", "gone", "b"])
    tokens = await candidates.tokens(ScoreQuery(INDEX, FINGERPRINT), ["a"])
    contents = await candidates.contents(ScoreQuery(INDEX, FINGERPRINT), ["a"])

    assert set(versions) == {"a", "b"}
    assert versions["a"] == tokens["a"].version == contents["a"].version
    assert contents["a"].content == text_item("a", 7).content
    with pytest.raises(errors.ModelMismatch):
        await candidates.tokens(ScoreQuery(INDEX, "model-b"), ["a"])
    with pytest.raises(errors.IndexNotFound):
        await candidates.tokens(ScoreQuery("nowhere", FINGERPRINT), ["a"])
    await candidates.close()
    async with opened(settings) as shard:
        assert (await shard.search(query(), soon())).item_count == 2
        with pytest.raises(errors.ServiceUnavailable, match="permission denied"):
            await store(shard, text_item("c"))


async def test_a_commit_is_on_disk_however_the_server_is_set(postgres: Postgres) -> None:
    """A stricter setting, of a standby that has to have it too, stays."""
    for configured, used in {"off": "on", "on": "on", "remote_apply": "remote_apply"}.items():
        url = postgres.url(options=f"?options=-c%20synchronous_commit%3D{configured}")
        connections = Servers(settings_of(postgres, url)).primary
        rows = await connections.run(
            lambda session: session.rows("SHOW synchronous_commit"), soon(), "check"
        )
        await connections.close()
        assert rows == [(used,)]


async def test_tables_of_a_release_before_notes_get_them_and_keep_their_items(
    postgres: Postgres,
) -> None:
    """Several services start at once over them."""
    settings = settings_of(postgres, engine_namespace="older")
    async with opened(settings) as shard:
        await store(shard, text_item("a"))
    postgres.execute("DROP TABLE older.notes; ALTER TABLE older.shard DROP COLUMN writers")
    async with opened(settings) as one, opened(settings) as two:
        await one.write(PutNote("alias/scenes", "{}", 0), soon())
        await two.write(SetWriter(INDEX, 1, is_open=False), soon())
        with pytest.raises(errors.WriterRefused):
            await store(one, text_item("b"))
        assert (await one.describe_index(INDEX, soon())).parts[0].item_count == 1
        assert len(await two.notes("", soon())) == 2


async def test_tables_of_another_shard_or_version_are_refused(postgres: Postgres) -> None:
    async with opened(settings_of(postgres, engine_namespace="first")):
        pass
    with pytest.raises(StoreRefused, match="has shard 0 of 1, not 1 of 2"):
        async with opened(
            settings_of(postgres, engine_namespace="first", shard_number=1, shard_count=2)
        ):
            pass
    # As the first version made it, which had no fences.
    postgres.execute("ALTER TABLE first.shard DROP store_id, DROP fence_end, DROP is_sealed")
    postgres.execute("UPDATE first.shard SET schema_version = 1")
    with pytest.raises(StoreRefused, match="of version 1, this release reads 2"):
        async with opened(settings_of(postgres, engine_namespace="first")):
            pass


async def test_dropped_tables_are_refused_and_not_made_again(postgres: Postgres) -> None:
    settings = settings_of(postgres, engine_namespace="gone")
    async with opened(settings) as shard:
        await store(shard, text_item("a"))
        postgres.execute("DROP SCHEMA gone CASCADE")
        for call in (shard.check(), shard.search(query(), soon()), store(shard, text_item("b"))):
            with pytest.raises(errors.ServiceUnavailable, match=r"42P01.*does not exist"):
                await call
    with pytest.raises(
        StoreRefused, match=r"are gone: .* drop the schema whose name ends in _made"
    ):
        async with opened(settings):
            pass
    postgres.execute("DROP SCHEMA gone_made")
    async with opened(settings) as shard:
        assert await shard.list_indexes("", 10, [], soon()) == []


async def test_several_processes_make_the_tables_and_an_index_at_once(postgres: Postgres) -> None:
    settings = settings_of(postgres, engine_namespace="crowd")
    shards = [PgvectorShard(settings) for _ in range(8)]
    await asyncio.gather(*(shard.open() for shard in shards))

    sequences = await asyncio.gather(
        *(store(shard, text_item(f"{n}"), text_item("all")) for n, shard in enumerate(shards))
    )

    assert sorted(sequences) == list(range(2, 18, 2))
    answer = await shards[0].search(query(20), soon())
    assert (answer.item_count, len(answer.found[0].hits)) == (9, 9)
    for shard in shards:
        await shard.close()


async def test_one_write_of_two_with_a_request_id_is_stored(postgres: Postgres) -> None:
    """They run at once, over two processes' connections; so do two deletes of the same item."""
    settings = settings_of(postgres, engine_namespace="twice")
    async with opened(settings) as one, opened(settings) as other:
        for _ in range(5):
            writes = (store(each, text_item("a"), request_id="w") for each in (one, other))
            assert await asyncio.gather(*writes) == [1, 1]
        deletes = (each.write(Delete(INDEX, ["a"]), soon()) for each in (one, other))
        assert sorted(each.deleted_count for each in await asyncio.gather(*deletes)) == [0, 1]
        assert (await one.search(query(), soon())).item_count == 0


async def test_a_hung_server_costs_a_call_its_deadline_and_answers_again(
    postgres: Postgres,
) -> None:
    async with opened(settings_of(postgres, engine_namespace="hung")) as shard:
        await store(shard, text_item("a"))
        postgres.pause()
        try:
            for _ in range(20):  # More than there are connections.
                start_time = time.monotonic()
                with pytest.raises(errors.DeadlineExceeded):
                    await shard.search(query(), Deadline.after(0.2))
                assert time.monotonic() - start_time < 1.0
        finally:
            postgres.resume()
        answer = await shard.search(query(), soon())
    assert [hit.item_id for hit in answer.found[0].hits] == ["a"]


async def test_a_killed_server_is_unavailable_and_then_answers_the_first_call(
    postgres: Postgres,
) -> None:
    """Also a write, if it has a request id; nothing is stored twice."""
    async with opened(settings_of(postgres, engine_namespace="killed")) as shard:
        await asyncio.gather(*(store(shard, text_item(f"{n}")) for n in range(8)))
        postgres.kill()
        for _ in range(3):
            with pytest.raises(errors.ServiceUnavailable):
                await shard.search(query(), soon())
            with pytest.raises(errors.ServiceUnavailable):
                await shard.check()
        postgres.start()
        assert (await shard.search(query(), soon())).item_count == 8
        await asyncio.gather(*(shard.search(query(), soon()) for _ in range(8)))
        postgres.kill()
        postgres.start()
        assert await store(shard, text_item("again"), request_id="again") == 9
        await shard.check()


async def test_a_sequence_that_never_comes_holds_no_connection(postgres: Postgres) -> None:
    """Anyone can make such a token; other searches go on meanwhile."""
    settings = settings_of(postgres, engine_namespace="never", engine_connection_count=1)
    async with opened(settings) as shard:
        await store(shard, image_item("a", 1))
        never = replace(query(), minimum_sequence=10**9)
        waiting = asyncio.create_task(shard.search(never, Deadline.after(2.0)))
        await asyncio.sleep(0.2)
        for _ in range(3):
            await shard.search(query(), Deadline.after(1.0))
        assert not waiting.done()
        with pytest.raises(errors.SequenceNotReached):
            await waiting


async def test_a_search_reads_a_standby_and_waits_for_the_sequence_of_its_token(
    postgres: Postgres,
) -> None:
    """Replay is halted, so that the standby lacks a write, and later an index, of the primary."""
    replays = "SELECT pg_wal_replay_{}()"
    async with opened(settings_of(postgres, engine_namespace="read")) as primary:
        sequence = await store(primary, text_item("a", 1))
        standby = postgres.standby("standby")
        standby.start()
        settings = settings_of(postgres, engine_namespace="read", engine_read_url=standby.url())
        try:
            async with opened(settings) as shard:
                asked = replace(query(), minimum_sequence=sequence)
                assert (await shard.search(asked, soon())).item_count == 1
                standby.execute(replays.format("pause"))
                later = replace(asked, minimum_sequence=await store(shard, text_item("b", 1)))
                assert (await shard.search(query(), soon())).item_count == 1
                assert (await primary.search(query(), soon())).item_count == 2
                with pytest.raises(errors.SequenceNotReached):
                    await shard.search(later, Deadline.after(0.3))
                await shard.write(Upsert("new", FINGERPRINT, [text_item("a", 1)]), soon())
                assert (await shard.search(replace(query(), index_id="new"), soon())).item_count
                candidates = PgvectorCandidates(settings, FINGERPRINT)
                assert set(
                    await candidates.versions(ScoreQuery(INDEX, FINGERPRINT), ["a", "b"])
                ) == {"a"}
                await candidates.close()
                waiting = asyncio.create_task(shard.search(later, soon()))
                await asyncio.sleep(0.1)
                assert not waiting.done()
                standby.execute(replays.format("resume"))
                assert (await waiting).item_count == 2
                standby.kill()
                with pytest.raises(errors.ServiceUnavailable):
                    await shard.search(query(), soon())
                await store(shard, text_item("c", 1))
        finally:
            standby.stop()


async def test_a_filter_loses_no_recall(postgres: Postgres) -> None:
    """The path says how: few are compared one by one, many are found by the index."""
    items = [
        replace(text_item(f"{n:05}", n), attributes={"n": n, "odd": bool(n % 2)})
        for n in range(6_400)
    ]
    async with opened(settings_of(postgres, engine_namespace="filters")) as shard:
        for start in range(0, len(items), 256):
            await store(shard, *items[start : start + 256])
        similarities = sorted(
            ((float(unit_vector(n) @ unit_vector(1)), n) for n in range(6_400)), reverse=True
        )
        cases: list[tuple[Filter, SearchStrategy, range]] = [
            (InRange("n", at_least=100, below=150), SearchStrategy.PRE_FILTER, range(100, 150)),
            (OneOf("odd", (True,)), SearchStrategy.POST_FILTER, range(1, 6_400, 2)),
            (InRange("n", at_least=50), SearchStrategy.POST_FILTER, range(50, 6_400)),
        ]
        for where, strategy, holds in cases:
            [found] = (await shard.search(query(20, where), soon())).found
            expected = [f"{n:05}" for _, n in similarities if n in holds][:20]
            assert found.path.strategy is strategy
            assert len(set(expected) & {hit.item_id for hit in found.hits}) >= (
                20 if strategy is SearchStrategy.PRE_FILTER else 18
            )


async def refused(shard: PgvectorShard, item: ItemRecord) -> errors.TandemError | None:
    """Returns the error of storing the item, if there is one."""
    try:
        await store(shard, item)
    except errors.TandemError as error:
        return error
    return None


@pytest.mark.skipif(SmallDisk.why_not() is not None, reason=str(SmallDisk.why_not()))
async def test_a_full_disk_refuses_writes_by_name_and_keeps_searches(tmp_path: Path) -> None:
    with (
        SmallDisk(tmp_path / "disk", 220 << 20) as disk,
        running_postgres(disk.path / "data", max_wal_size="64MB", min_wal_size="32MB") as server,
    ):
        async with opened(settings_of(server)) as shard:
            await store(shard, text_item("a"))
            disk.fill(left_bytes=1 << 20)
            large = replace(image_item("large"), content=ImageContent(bytes(4 << 20)))
            refusals = [await refused(shard, replace(large, item_id=f"{n}")) for n in range(8)]
            assert {type(each) for each in refusals if each} == {errors.StoreFull}
            disk.empty()
            end_time = time.monotonic() + 60
            while await refused(shard, text_item("b")):  # It may have to recover first.
                assert time.monotonic() < end_time
                await asyncio.sleep(0.2)
            answer = await shard.search(query(), soon())
            assert [hit.item_id for hit in answer.found[0].hits] == ["a", "b"]
