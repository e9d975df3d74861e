"""What Milvus alone can do wrong: filters, tokens, records elsewhere, and a server that is ill."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from index_svc.settings import IndexSettings
from tandem.chassis.settings import SettingsError
from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.attributes import Attributes, AttributeValue
from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    Value,
    holds,
)
from tandem.contract.search_path import SearchFallback, SearchStrategy
from tandem.errors import (
    AttributeInvalid,
    DeadlineExceeded,
    ItemCorrupt,
    NoteChanged,
    SequenceNotReached,
    ServiceUnavailable,
    TandemError,
)
from tandem.platform.files.object_store import object_folder
from tandem.remote.chosen_engine import engine_candidates, engine_shard
from tandem.remote.engine_shard import EngineShard
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord, ItemsQuery
from tandem.stages.notes import PutNote
from tandem.stages.reranking import ScoreQuery
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import ShardAnswer
from tests.support.engines.milvus_server import MilvusServer, shared_milvus
from tests.support.engines.milvus_shard import damage_object, milvus_settings
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item, unit_vector
from tests.support.object_store.moto_server import BUCKET, moto_server, s3_environment

pytest.importorskip("milvus", reason="make test-engines installs Milvus")
from pymilvus import AsyncMilvusClient

from tandem.remote.milvus import notes
from tandem.remote.milvus.shard_state import EngineState, SharedState
from tests.support.engines import killed_write
from tests.support.engines.killed_write import ITEM_COUNT, SETTLED_SECONDS, WRITE_SECONDS, upsert

TEXTS = [
    "",
    "a",
    "ab",
    "a%",
    "a_c",
    'q"uote',
    "back\\slash",
    "new\nline",
    "é",
    "a\ud7ff",
    "\U0010ffff",
]
OTHERS: list[AttributeValue] = [*TEXTS, 1, True, 2.5, ("a", "b")]
FIELDS = "text:text,number:number,flag:flag,texts:texts"


@asynccontextmanager
async def opened(settings: IndexSettings) -> AsyncIterator[EngineShard]:
    """Yields the shard of the settings, without waiting for the server."""
    shard = engine_shard(settings)
    assert shard is not None
    try:
        yield shard
    finally:
        await shard.close()


def soon() -> Deadline:
    return Deadline.after(60.0)


async def store(shard: EngineShard, items: Sequence[ItemRecord]) -> int:
    """Returns the sequence after the write."""
    return (await shard.write(Upsert("scenes", FINGERPRINT, items), soon())).sequence


def query(where: Filter | None = None, minimum_sequence: int = 0, k: int = 200) -> ShardQuery:
    checked = None if where is None else checked_filter(filter_to_proto(where))
    return ShardQuery(
        "scenes",
        FINGERPRINT,
        Modality.TEXT,
        Modality.TEXT,
        k,
        [unit_vector(1)],
        checked,
        minimum_sequence,
    )


def made_attributes(rng: random.Random) -> Attributes:
    """Returns attributes of the four fields' types, and of one without a field."""
    values: dict[str, AttributeValue] = {
        "text": rng.choice(TEXTS),
        "number": rng.choice([0, 1, -1, 2.5, 1e300, -1e300, 2**53, 1e-7]),
        "flag": rng.choice([True, False]),
        "texts": tuple(rng.sample(TEXTS, rng.randrange(3))),
        "other": rng.choice(OTHERS),
    }
    return {name: value for name, value in values.items() if rng.random() < 0.7}


def made_filter(rng: random.Random, names: Sequence[str], depth: int = 0) -> Filter:
    kind = rng.randrange(7 if depth < 3 else 4)
    name = rng.choice(names)
    if kind == 0:
        values: list[Value] = [*TEXTS, 0, 1, 2.5, True, False, 2**53 + 1, 1.0]
        return OneOf(name, tuple(rng.sample(values, rng.randrange(1, 4))))
    if kind == 1:
        bound = rng.choice([0, 1.0, -1e300, 2.5, 1e-7])
        return InRange(name, **{rng.choice(["at_least", "above", "at_most", "below"]): bound})
    if kind == 2:
        return StartsWith(name, rng.choice(TEXTS))
    if kind == 3:
        return Exists(name)
    if kind == 4:
        return Not(made_filter(rng, names, depth + 1))
    parts = tuple(made_filter(rng, names, depth + 1) for _ in range(rng.randrange(3)))
    return AllOf(parts) if kind == 5 else AnyOf(parts)


async def test_filters_mean_what_they_mean_here(tmp_path: Path) -> None:
    """Of typed fields alone, of others, and of both; in what is compared here and in Milvus."""
    rng = random.Random(7)
    items = [replace(text_item(f"{n:03d}", n), attributes=made_attributes(rng)) for n in range(150)]
    strategies = set()
    async with opened(milvus_settings(tmp_path, f"tokens=on&fields={FIELDS}")) as shard:
        sequence = await store(shard, items)
        for number in range(240):
            names = ["text", "number", "flag", "texts", *(["other"] if number % 2 else [])]
            where = made_filter(rng, names)
            answer = await shard.search(query(where, sequence), soon())
            found = {hit.item_id for hit in answer.found[0].hits}
            assert found == {each.item_id for each in items if holds(where, each.attributes)}, where
            strategies.add(answer.found[0].path.strategy)
    assert strategies >= {SearchStrategy.EXACT_SCAN, SearchStrategy.POST_FILTER}


async def test_many_matches_are_left_to_milvus_and_too_few_are_flagged(tmp_path: Path) -> None:
    items = [
        replace(text_item(f"{n:05d}", n), attributes={"number": n, "other": n})
        for n in range(3_000)
    ]
    async with opened(milvus_settings(tmp_path, "tokens=on&fields=number:number")) as shard:
        for start in range(0, len(items), 250):
            sequence = await store(shard, items[start : start + 250])

        async def search(where: Filter) -> tuple[int, SearchStrategy, SearchFallback]:
            [found] = (await shard.search(query(where, sequence, 20), soon())).found
            path = found.path
            return len(found.hits), path.strategy, path.fallback.kind

        many, few = InRange("number", at_least=500), InRange("number", below=5)
        assert await search(many) == (20, SearchStrategy.PRE_FILTER, SearchFallback.NONE)
        assert await search(few) == (5, SearchStrategy.EXACT_SCAN, SearchFallback.NONE)
        few = InRange("other", below=5)
        assert await search(few) == (5, SearchStrategy.POST_FILTER, SearchFallback.NONE)
        both = many & InRange("other", at_most=520)
        assert await search(both) == (20, SearchStrategy.POST_FILTER, SearchFallback.NONE)


async def test_a_value_of_another_type_than_its_field_is_refused(tmp_path: Path) -> None:
    bad: list[Attributes] = [{"text": 1}, {"number": "1"}, {"number": True}, {"flag": 1}]
    async with opened(milvus_settings(tmp_path, f"fields={FIELDS}")) as shard:
        for attributes in [*bad, {"texts": 1}, {"number": 2**53 + 1}]:
            with pytest.raises(AttributeInvalid):
                await store(shard, [replace(text_item("a", 1), attributes=attributes)])
        assert await shard.list_item_ids("scenes", "", 10, soon()) == []


async def test_a_token_is_refused_where_it_is_not_honoured(tmp_path: Path) -> None:
    """Without one the same search answers."""
    async with opened(milvus_settings(tmp_path, "tokens=off")) as shard:
        sequence = await store(shard, [text_item("a", 1)])
        with pytest.raises(SequenceNotReached, match="tokens=on"):
            await shard.search(query(minimum_sequence=sequence), soon())
        await shard.search(query(), soon())


async def test_odd_ids_are_stored_listed_and_deleted(tmp_path: Path) -> None:
    ids = sorted((f"x{text}" for text in TEXTS if "\ud7ff" not in text), key=str.encode)
    async with opened(milvus_settings(tmp_path)) as shard:
        await store(shard, [text_item(each, 1) for each in ids])
        assert await shard.list_item_ids("scenes", "", 100, soon()) == ids
        assert list((await shard.get(ItemsQuery("scenes", ids), soon())).items) == ids


async def test_two_services_make_one_index_at_once(tmp_path: Path) -> None:
    """Of one model each item is stored; of two models one is refused by name."""
    settings = milvus_settings(tmp_path)
    async with opened(settings) as one, opened(settings) as other:
        await asyncio.gather(store(one, [text_item("a", 1)]), store(other, [text_item("b", 1)]))
        assert await one.list_item_ids("scenes", "", 10, soon()) == ["a", "b"]
        for number in range(3):
            writes = [
                shard.write(Upsert(f"new-{number}_x", model, [text_item("a", 1)]), soon())
                for shard, model in ((one, "model-a"), (other, "model-b"))
            ]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
            assert sorted(type(each).__name__ for each in outcomes) == [
                "Committed",
                "ModelMismatch",
            ]
        summaries = await other.list_indexes("", 10, [], soon())
        assert [each.index_id for each in summaries] == ["new-0_x", "new-1_x", "new-2_x", "scenes"]


async def test_an_index_whose_maker_died_is_loaded_by_the_next_service(tmp_path: Path) -> None:
    """Whatever call comes first."""
    settings = milvus_settings(tmp_path)
    async with opened(settings) as shard:
        sequence = await store(shard, [text_item("a", 1)])
        client = AsyncMilvusClient(f"http://{shared_milvus().address}")
        await client.release_collection(f"{settings.engine_namespace}_scenes")
        await client.close()
        with pytest.raises(ServiceUnavailable, match="not loaded"):
            await shard.search(query(), soon())
    async with opened(settings) as shard:
        [found] = (await shard.search(query(minimum_sequence=sequence), soon())).found
        assert [hit.item_id for hit in found.hits] == ["a"]


async def test_a_copy_sees_the_writes_that_a_move_did_not_have_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another service stores an item after the move reads the time, before that service knows."""
    settings = milvus_settings(tmp_path)
    async with opened(settings) as shard, opened(settings) as other:
        sequences = [await store(other, [text_item("a", 1)])]
        change = SharedState.change

        async def late_change(
            state: SharedState, changed: Callable[[EngineState], EngineState]
        ) -> EngineState:
            if len(sequences) == 1:
                sequences.append(await store(other, [text_item("a", 2)]))
            return await change(state, changed)

        time_of_log = (await shard.changes(0, 1, soon())).sequence
        monkeypatch.setattr(SharedState, "change", late_change)
        page = await shard.changes(time_of_log, 1, soon())

        assert len(sequences) == 2
        assert page.sequence > sequences[1]
        found = await shard.get(ItemsQuery("scenes", ["a"], encodings_included=True), soon())
        assert found.items["a"].content == text_item("a", 2).content


def files(folder: Path, *, notes_too: bool = False) -> list[Path]:
    """Returns the records of all items, and the notes of writes."""
    there = [path for path in folder.rglob("*") if path.is_file()]
    last = () if notes_too else ("notes",)
    return [path for path in there if not path.parent.name.endswith(("requests", *last))]


async def settled(folder: Path, count: int, note_count: int = 0) -> None:
    """Waits until exactly `count` records and `note_count` notes are left."""
    end_time = time.monotonic() + 30
    while len(files(folder, notes_too=True)) != count + note_count:
        assert time.monotonic() < end_time, len(files(folder))
        await asyncio.sleep(0.05)


@pytest.fixture
def soon_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has notes settled some seconds after their writes."""
    monkeypatch.setattr(notes, "GRACE_SECONDS", SETTLED_SECONDS - WRITE_SECONDS)


@pytest.mark.usefixtures("soon_settled")
async def test_records_are_deleted_with_their_items(tmp_path: Path) -> None:
    """Also those replaced at once, or of a dropped index; one that is lost is named."""
    folder = tmp_path / "objects"
    settings = milvus_settings(folder)
    async with opened(settings) as shard, opened(settings) as other:
        await store(shard, [text_item(each, 1) for each in "abc"])
        for seed in (2, 3):
            await store(other, [text_item("a", seed)])
        assert len(files(folder)) == 5
        await shard.open()
        await settled(folder, 3)
        assert list((await other.get(ItemsQuery("scenes", list("abc")), soon())).items) == [*"abc"]
        await shard.write(Delete("scenes", ["c", "gone"]), soon())
        await settled(folder, 2)
        damage_object(folder, "b")
        with pytest.raises(ItemCorrupt):
            await other.get(ItemsQuery("scenes", ["b"]), soon())
        for path in files(folder):
            path.unlink()
        with pytest.raises(ItemCorrupt, match="not in the object store"):
            await other.get(ItemsQuery("scenes", ["a"]), soon())
        await store(shard, [text_item("d", 1)])
        await shard.delete_index("scenes", soon())
        await settled(folder, 0)


@pytest.mark.usefixtures("soon_settled")
async def test_a_damaged_note_keeps_no_other_from_being_settled(tmp_path: Path) -> None:
    """It is tried again and again, with a warning each time."""
    folder = tmp_path / "objects"
    async with opened(milvus_settings(folder)) as shard:
        await store(shard, [text_item("a", 1)])
        [note] = [path for path in folder.rglob("*") if path.parent.name.endswith("notes")]
        (note.parent / "0_damaged").write_text("{")
        await shard.open()
        await settled(folder, 1, note_count=1)
        await store(shard, [text_item("a", 2)])
        await settled(folder, 1, note_count=1)


@pytest.mark.usefixtures("soon_settled")
async def test_an_item_that_milvus_has_twice_keeps_both_records(tmp_path: Path) -> None:
    """As after a kill between its two messages of a write; writing it again ends that."""
    folder = tmp_path / "objects"
    settings = milvus_settings(folder)
    name = f"{settings.engine_namespace}_scenes"
    async with opened(settings) as shard:
        await store(shard, [text_item("a", 1)])
        client = AsyncMilvusClient(f"http://{shared_milvus().address}")
        [old] = await client.query(
            name, 'item_id == "a"', output_fields=["*"], consistency_level="Strong"
        )
        await store(shard, [text_item("a", 2)])
        await client.insert(name, [dict(old)])
        await client.close()
        await shard.open()
        await asyncio.sleep(2 * SETTLED_SECONDS)
        assert len(files(folder)) == 2
        await store(shard, [text_item("a", 3)])
        await settled(folder, 1)


@pytest.mark.usefixtures("soon_settled")
async def test_records_are_in_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As both services read them, until the index is dropped."""
    with moto_server() as endpoint:
        for name, value in s3_environment(endpoint).items():
            monkeypatch.setenv(name, value)
        given = milvus_settings(tmp_path)
        url = given.engine_url.replace(f"file://{tmp_path}", f"s3://{BUCKET}/tandem")
        settings = replace(given, engine_url=url)
        items = [text_item("a", 1), image_item("b", 2)]
        bucket = object_folder(f"s3://{BUCKET}")
        candidates = engine_candidates(settings, FINGERPRINT)
        assert candidates is not None
        async with opened(settings) as shard:
            await shard.open()
            await store(shard, [text_item("a", 9), *items[1:]])
            await store(shard, items)
            read = (await shard.get(ItemsQuery("scenes", ["a", "b"]), soon())).items
            assert [item.content for item in read.values()] == [item.content for item in items]
            await asyncio.sleep(1.0)
            contents = await candidates.contents(ScoreQuery("scenes", FINGERPRINT), ["a", "b"])
            assert {each.content for each in contents.values()} == {each.content for each in items}
            assert len(bucket.sizes()) >= len(items)
            puts = (shard.write(PutNote("alias/a", f"{n}", 0), soon()) for n in range(5))
            told = await asyncio.gather(*puts, return_exceptions=True)
            assert sum(isinstance(each, NoteChanged) for each in told) == 4
            assert len(await shard.notes("", soon())) == 1
            await shard.delete_index("scenes", soon())
            end_time = time.monotonic() + 30
            while not all(name.endswith("-move/state") for name in bucket.sizes()):
                assert time.monotonic() < end_time
                await asyncio.sleep(0.1)
        await candidates.close()


@pytest.mark.usefixtures("soon_settled")
async def test_a_killed_write_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    """Wherever it dies. Its repeat completes it, and the next start deletes what it left."""
    folder = tmp_path / "objects"
    settings = milvus_settings(folder)
    left = {"note": 0, "half": ITEM_COUNT // 2, "records": ITEM_COUNT, "rows": ITEM_COUNT}
    async with opened(settings) as shard:

        async def contents(point: str) -> set[object]:
            item_ids = [item.item_id for item in upsert(point, 1).items]
            read = (await shard.get(ItemsQuery("scenes", item_ids), soon())).items
            assert list(read) == item_ids
            return {str(item.content).rpartition(" ")[2].strip("')") for item in read.values()}

        for point, left_count in left.items():
            await shard.write(upsert(point, 1), soon())
            before = len(files(folder)), len(files(folder, notes_too=True))
            killed = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", killed_write.__name__),
                *(settings.engine_url, settings.engine_namespace, point),
            )
            assert await killed.wait() == -signal.SIGKILL
            after = len(files(folder)), len(files(folder, notes_too=True))
            assert after == (before[0] + left_count, before[1] + left_count + 1)
            await asyncio.sleep(1.0)
            assert await contents(point) == {"2" if point == "rows" else "1"}

            assert not (await shard.write(upsert(point, 2), soon())).is_repeat
            assert await contents(point) == {"2"}
            assert (await shard.write(upsert(point, 2), soon())).is_repeat
    async with opened(settings) as shard:
        await shard.open()
        await settled(folder, ITEM_COUNT * len(left))
        for point in left:
            assert await contents(point) == {"2"}


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[MilvusServer]:
    """A server that a test may harm."""
    server = MilvusServer(tmp_path / "server")
    server.start()
    yield server
    server.stop_for_good()


async def test_a_dead_or_slow_server_is_named_and_returns(
    own_server: MilvusServer, tmp_path: Path
) -> None:
    """The service is the same one all the time."""
    async with opened(milvus_settings(tmp_path / "o", server=own_server)) as shard:
        items = [text_item(f"{n}", n) for n in range(40)]
        sequence = await store(shard, items)
        before = (await shard.search(query(minimum_sequence=sequence), soon())).found[0].hits
        assert len(before) == 40

        own_server.signal(signal.SIGSTOP)
        start_time = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await shard.search(query(), Deadline.after(0.5))
        assert time.monotonic() - start_time < 1.0
        own_server.signal(signal.SIGCONT)
        await shard.search(query(), soon())

        own_server.kill()
        for call in (shard.search(query(), soon()), store(shard, items), shard.check()):
            start_time = time.monotonic()
            with pytest.raises(ServiceUnavailable):
                await call
            assert time.monotonic() - start_time < 5.0

        await asyncio.to_thread(own_server.start)
        assert (await answered(shard)).found[0].hits == before
        await store(shard, [text_item("later", 1)])


async def answered(shard: EngineShard) -> ShardAnswer:
    """Returns the first answer; all before are refusals that a caller may repeat."""
    end_time = time.monotonic() + 90
    while True:
        try:
            return await shard.search(query(), Deadline.after(5.0))
        except (ServiceUnavailable, DeadlineExceeded):
            assert time.monotonic() < end_time
            await asyncio.sleep(0.2)


async def test_a_wrong_password_and_a_foreign_certificate_are_named(tmp_path: Path) -> None:
    """The right ones are let in."""
    authority, foreign = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    foreign.cert_pem.write_to_path(tmp_path / "foreign.pem")
    server = MilvusServer(
        tmp_path / "server",
        {
            "tls_mode": 1,
            "server_pem_path": str(tmp_path / "server.pem"),
            "server_key_path": str(tmp_path / "server.key"),
            "authorization_enabled": True,
        },
    )
    server.start()

    def settings(password: str, authority_name: str) -> IndexSettings:
        given = milvus_settings(tmp_path / "o", f"authority={tmp_path / authority_name}", server)
        url = given.engine_url.replace("http://127.0.0.1", f"https://root:{password}@localhost")
        return replace(given, engine_url=url)

    try:
        async with opened(settings("Milvus", "ca.pem")) as shard:
            await shard.open()
            await store(shard, [text_item("a", 1)])
        for wrong in (settings("wrong", "ca.pem"), settings("Milvus", "foreign.pem")):
            async with opened(wrong) as shard:
                for call in (shard.check(), store(shard, [text_item("b", 1)])):
                    with pytest.raises(TandemError) as caught:
                        await call
                    assert isinstance(caught.value, ServiceUnavailable)
                    assert "wrong" not in str(caught.value)
    finally:
        server.stop_for_good()


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:19530",
        "http://127.0.0.1:19530",
        "http://127.0.0.1:1?objects=bogus://x",
        "http://127.0.0.1:1?objects=file:///tmp/x&tokens=yes",
        "http://127.0.0.1:1?objects=file:///tmp/x&fields=a:int",
        "http://127.0.0.1:1?objects=file:///tmp/x&tokans=on",
        "http://[::1]:1?objects=file:///tmp/x",
    ],
)
def test_a_url_without_sense_is_refused(url: str) -> None:
    settings = IndexSettings(shard_number=0, shard_count=1, engine="milvus", engine_url=url)
    with pytest.raises(SettingsError):
        engine_shard(settings)
