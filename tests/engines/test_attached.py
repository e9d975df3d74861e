"""What another program made is searched as an own index is, and is not changed.

The read half of tests/contracts/test_shard_contract.py, over a table and a collection that
Tandem did not make.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tandem import errors
from tandem.chassis.settings import SettingsError
from tandem.contract.content import MAX_IMAGE_BYTES, ImageContent, Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.filters import AnyOf, Exists, InRange, Not, OneOf, StartsWith
from tandem.contract.index_description import IndexSummary
from tandem.contract.search_path import KeywordState
from tandem.remote.chosen_engine import engine_candidates, engine_shard
from tandem.remote.engine_shard import EngineShard
from tandem.stages.item_write import Delete, Fence, Upsert
from tandem.stages.items import FetchedItem, ItemsQuery
from tandem.stages.neighbours import ShardNeighbourQuery
from tandem.stages.notes import PutNote, SetWriter
from tandem.stages.reranking import ScoreQuery
from tandem.stages.retrieval import ShardQuery
from tests.support.engines.attached import (
    FILLS,
    INDEX,
    Row,
    attached,
    fill_milvus,
    opened,
    settings_of,
)
from tests.support.engines.postgres import shared_postgres
from tests.support.item_store.made_items import DIMENSION, FINGERPRINT, image_item, unit_vector

ROWS = [
    Row(f"p{n}", unit_vector(n) * (n + 1), f"p{n}.jpg", {"colour": colour, "year": 2000 + n})
    for n, colour in enumerate(["red", "blue", "red", "green"])
]


def soon() -> Deadline:
    return Deadline.after(60.0)


@pytest.fixture(params=["pgvector", "milvus"])
def engine(request: pytest.FixtureRequest) -> str:
    pytest.importorskip({"pgvector": "psycopg", "milvus": "milvus"}[request.param])
    if request.param == "pgvector":
        shared_postgres()
    return str(request.param)


@pytest.fixture
async def shard(engine: str, tmp_path: Path) -> AsyncIterator[EngineShard]:
    """Yields four photographs of another program, whose vectors have other lengths than 1."""
    async with opened(engine, attached(engine, FILLS[engine](ROWS, tmp_path), tmp_path)) as shard:
        for row in ROWS:
            (tmp_path / "pictures" / str(row.picture)).write_bytes(str(row.picture).encode())
        yield shard


def query(*seeds: int, **changed: object) -> ShardQuery:
    asked = ShardQuery(
        INDEX, FINGERPRINT, Modality.IMAGE, Modality.TEXT, 10, [*map(unit_vector, seeds or (1,))]
    )
    return replace(asked, **changed)  # type: ignore[arg-type]


async def found(shard: EngineShard, asked: ShardQuery) -> list[list[str]]:
    answer = await shard.search(asked, soon())
    return [[hit.item_id for hit in each.hits] for each in answer.found]


async def test_searches_find_the_nearest_by_cosine(shard: EngineShard) -> None:
    """Whatever the vectors' lengths; no text is found; hits bring unit vectors."""
    for included in (False, True):
        answer = await shard.search(query(2, 0, embeddings_included=included), soon())
        assert answer.item_count == 4
        for seed, each in zip((2, 0), answer.found, strict=True):
            cosines = {f"p{n}": float(unit_vector(n) @ unit_vector(seed)) for n in range(4)}
            expected = sorted(cosines, key=lambda item_id: -cosines[item_id])
            assert [hit.item_id for hit in each.hits] == expected
            similarities = [hit.similarity for hit in each.hits]
            assert similarities == pytest.approx([cosines[name] for name in expected], abs=1e-5)
            if included:
                assert each.embeddings is not None
                rows = np.stack([unit_vector(int(name[1:])) for name in expected])
                assert each.embeddings == pytest.approx(rows, abs=1e-6)
    assert await found(shard, query(modality=Modality.TEXT)) == [[]]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (OneOf("colour", ("red",)), ["p0", "p2"]),
        (InRange("year", above=2001) & ~OneOf("colour", ("green",)), ["p2"]),
        (StartsWith("colour", "b") | OneOf("year", (2003,)), ["p1", "p3"]),
        (AnyOf(()), []),
        (Not(AnyOf(())) & OneOf("colour", ("red",)), ["p0", "p2"]),
    ],
)
async def test_filters_hold_of_columns(
    shard: EngineShard, where: OneOf, expected: Sequence[str]
) -> None:
    asked = query(filter=checked_filter(filter_to_proto(where)))
    assert [sorted(each) for each in await found(shard, asked)] == [expected]


async def test_items_are_read_with_pictures_attributes_and_encodings(shard: EngineShard) -> None:
    whole = await shard.get(ItemsQuery(INDEX, ["p1", "gone", "p0"]), soon())
    bare = await shard.get(ItemsQuery(INDEX, ["p1"], content_included=False), soon())
    encoded = await shard.get(ItemsQuery(INDEX, ["p1", "p3"], encodings_included=True), soon())
    short = await shard.get(ItemsQuery(INDEX, ["p1", "p0"], max_bytes=1), soon())

    assert {name: item.content for name, item in whole.items.items()} == {
        "p1": ImageContent(b"p1.jpg"),
        "p0": ImageContent(b"p0.jpg"),
    }
    assert bare.items["p1"].attributes["colour"] == whole.items["p1"].attributes["colour"] == "blue"
    assert (bare.items["p1"].attributes["year"], bare.items["p1"].content) == (2001, None)
    assert encoded.fingerprint == FINGERPRINT
    for seed in (1, 3):
        encoding = encoded.items[f"p{seed}"].encoding
        assert encoding is not None
        assert encoding.embedding == pytest.approx(unit_vector(seed), abs=1e-6)
        assert encoding.tokens.is_empty
    assert (list(short.items), short.read_count) == (["p1"], 1)


async def test_indexes_and_ids_are_listed_and_described(shard: EngineShard) -> None:
    assert await shard.list_item_ids(INDEX, "", 3, soon()) == ["p0", "p1", "p2"]
    assert await shard.list_item_ids(INDEX, "p2", 3, soon()) == ["p3"]
    assert await shard.list_indexes("", 10, (), soon()) == [IndexSummary(INDEX, FINGERPRINT, 0, 4)]
    described = await shard.describe_index(INDEX, soon())
    assert (described.fingerprint, described.embedding_dimension) == (FINGERPRINT, DIMENSION)
    assert {part.modality: part.item_count for part in described.parts} == {
        Modality.TEXT: 0,
        Modality.IMAGE: 4,
    }


async def test_neighbours_are_compared_in_unit_length(shard: EngineShard) -> None:
    nodes = np.stack([unit_vector(seed) for seed in (0, 2, 3)])
    asked = ShardNeighbourQuery(INDEX, FINGERPRINT, nodes, 4, 2, 1)
    images = (await shard.find_neighbours(asked, soon()))[Modality.IMAGE]
    assert images.similarities[:, 0] == pytest.approx([1.0, 1.0, 1.0], abs=1e-6)


async def test_what_cannot_be_promised_is_refused_or_flagged_by_name(shard: EngineShard) -> None:
    for write in (
        shard.write(Upsert(INDEX, FINGERPRINT, [image_item("new", 1)]), soon()),
        shard.write(Delete(INDEX, ["p0"]), soon()),
        shard.write(PutNote("alias/photos", "{}", 0), soon()),
        shard.write(SetWriter(INDEX, 1, is_open=False), soon()),
        shard.delete_index(INDEX, soon()),
        shard.changes(0, 10, soon()),
        shard.fence(Fence(1.0), soon()),
    ):
        with pytest.raises(errors.IndexReadOnly):
            await write
    assert await shard.notes("", soon()) == ()
    with pytest.raises(errors.SequenceNotReached):
        await shard.search(query(minimum_sequence=1), Deadline.after(0.5))
    words = (await shard.search(query(keywords="cat"), soon())).keyword_found
    assert words is not None
    assert words.state is KeywordState.DISABLED
    assert len(await shard.list_item_ids(INDEX, "", 10, soon())) == 4


async def test_an_unknown_index_another_model_and_another_dimension_are_refused(
    shard: EngineShard,
) -> None:
    nodes = np.stack([unit_vector(0)])
    for call in (
        shard.search(query(index_id="nowhere"), soon()),
        shard.get(ItemsQuery("nowhere", ["a"]), soon()),
        shard.list_item_ids("nowhere", "", 1, soon()),
        shard.describe_index("nowhere", soon()),
        shard.find_neighbours(ShardNeighbourQuery("nowhere", FINGERPRINT, nodes, 4, 2, 1), soon()),
    ):
        with pytest.raises(errors.IndexNotFound):
            await call
    with pytest.raises(errors.ModelMismatch):
        await shard.search(query(fingerprint="model-b"), soon())
    with pytest.raises(errors.EmbeddingInvalid, match="16"):
        await shard.search(query(embeddings=[unit_vector(1, 16)]), soon())


HOSTILE_KEYS = ["../secret", "/secret", "file:///secret", "http://host/x", "p0.jpg/x", "", "a#1"]


async def test_a_row_reaches_no_object_outside_the_store_and_crashes_nothing(
    engine: str, tmp_path: Path
) -> None:
    """A missing or foreign picture is no content; a vector of length 0 or none is never found."""
    rows = [Row(f"k{n}", unit_vector(n), key) for n, key in enumerate(HOSTILE_KEYS)]
    rows += [
        Row("large", unit_vector(20), "large.jpg"),
        Row("zero", np.zeros(DIMENSION, np.float32), "p0.jpg"),
        Row("i" * 300, unit_vector(1), "p0.jpg"),
        Row("odd", unit_vector(21), "p0.jpg", {"colour": "x" * 90, "tags": ["a", "b"]}),
    ]
    if engine == "pgvector":  # Milvus has no NULL.
        rows += [Row(None, unit_vector(1)), Row("none", None), Row("", unit_vector(1), None)]
        rows += [Row("long", unit_vector(22), "p0.jpg", {"colour": "x" * 2_000})]
    (tmp_path / "secret").write_bytes(b"secret")
    file = attached(engine, FILLS[engine](rows, tmp_path), tmp_path)
    (tmp_path / "pictures" / "p0.jpg").write_bytes(b"p0.jpg")
    with (tmp_path / "pictures" / "large.jpg").open("wb") as large:
        large.truncate(MAX_IMAGE_BYTES + 1)
    sound = {f"k{n}" for n in range(len(HOSTILE_KEYS))} | {"large", "odd"}
    sound |= {"long"} if engine == "pgvector" else set()

    async with opened(engine, file) as shard:
        for included in (False, True):
            asked = query(retrieve_k=50, embeddings_included=included)
            assert {*(await found(shard, asked))[0]} == sound
        asked = query(retrieve_k=50, filter=checked_filter(filter_to_proto(Exists("colour"))))
        assert {*(await found(shard, asked))[0]} <= sound
        left = sorted(sound)
        items: dict[str, FetchedItem] = {}
        while left:
            part = await shard.get(ItemsQuery(INDEX, left), soon())
            items |= part.items
            del left[: part.read_count]
        assert items.keys() == sound
        whole = {name for name, item in items.items() if item.content is not None}
        assert whole == sound & {"odd", "long"}
        assert items["odd"].attributes["tags"] == ("a", "b")
        assert "colour" not in items["long"].attributes if "long" in sound else True
        with pytest.raises(errors.ItemCorrupt):
            await shard.get(ItemsQuery(INDEX, ["zero"], encodings_included=True), soon())

    candidates = engine_candidates(settings_of(engine, file), FINGERPRINT)
    assert candidates is not None
    await candidates.open()
    asked_ids = [*sorted(sound), "gone"]
    versions = await candidates.versions(ScoreQuery(INDEX, FINGERPRINT), asked_ids)
    contents = await candidates.contents(ScoreQuery(INDEX, FINGERPRINT), asked_ids)
    assert versions.keys() == sound
    assert contents.keys() == whole
    assert all(contents[name].version == versions[name] for name in whole)
    with pytest.raises(errors.ModelMismatch):
        await candidates.tokens(ScoreQuery(INDEX, "model-b"), asked_ids)
    await candidates.close()


def test_a_file_that_was_not_checked_as_it_stands_starts_no_service(
    engine: str, tmp_path: Path
) -> None:
    """Nor does one with an unknown field, an index id that is none, or a store that is missing."""
    file = attached(engine, "photos", tmp_path)
    text = file.read_text()
    for old, new, why in (
        ('"mapping": "', '"mapping": "x', "was not checked"),
        ('"colour"', '"color"', "was not checked"),
        ('"table"', '"query"', "unknown fields"),
        (f'"{INDEX}"', '"No Id"', "not valid"),
        ("/pictures", "/elsewhere", "was not checked"),
    ):
        file.write_text(text.replace(old, new))
        with pytest.raises(SettingsError, match=why):
            engine_shard(settings_of(engine, file))
    file.write_text(text)
    (tmp_path / "pictures").rmdir()
    with pytest.raises(SettingsError, match="object store"):
        engine_shard(settings_of(engine, file))


async def test_a_column_that_is_missing_is_named_at_the_start(tmp_path: Path) -> None:
    shared_postgres()
    table = FILLS["pgvector"](ROWS, tmp_path)
    file = attached("pgvector", table, tmp_path, attributes=["colour", "weight"])
    with pytest.raises(errors.ServiceUnavailable, match='"weight" does not exist'):
        async with opened("pgvector", file):
            pass


@pytest.mark.parametrize("metric", ["vector_cosine_ops", "vector_ip_ops"])
async def test_the_tables_own_index_is_used(tmp_path: Path, metric: str) -> None:
    """A plan with a sort would compare every row."""
    rows = [Row(f"p{n:04}", unit_vector(n)) for n in range(2_000)]
    table = FILLS["pgvector"](rows, tmp_path, metric=metric)
    shared_postgres().execute(f"ANALYZE {table}")
    said = "cosine" if metric == "vector_cosine_ops" else "inner product"
    async with opened("pgvector", attached("pgvector", table, tmp_path, metric=said)) as shard:
        [answer] = (await shard.search(query(7, retrieve_k=5), soon())).found
        assert (answer.hits[0].item_id, len(answer.hits)) == ("p0007", 5)
        assert answer.hits[0].similarity == pytest.approx(1.0, abs=1e-6)
        await shard.get(ItemsQuery(INDEX, ["p0001"]), soon())
    used = shared_postgres().execute(
        "SELECT string_agg(idx_scan::text, ',') FROM pg_stat_user_indexes "
        f"WHERE relname = '{table}'"
    )
    assert min(map(int, used.strip().split(","))) >= 1


async def test_other_index_types_of_milvus_are_searched(tmp_path: Path) -> None:
    pytest.importorskip("milvus")
    rows = [Row(f"p{n:04}", unit_vector(n)) for n in range(2_000)]
    table = fill_milvus(rows, tmp_path, index_type="IVF_FLAT")
    async with opened("milvus", attached("milvus", table, tmp_path)) as shard:
        [answer] = (await shard.search(query(7, retrieve_k=5), soon())).found
        assert (answer.hits[0].item_id, len(answer.hits)) == ("p0007", 5)
