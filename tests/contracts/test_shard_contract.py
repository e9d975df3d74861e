"""Every shard keeps one contract, here, behind a socket, and in outside engines."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tandem import errors
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import Exists, OneOf
from tandem.contract.index_description import IndexSummary
from tandem.contract.search.item_changes import ItemPatch, ItemSelection
from tandem.contract.search_path import KeywordState
from tandem.stages.item_write import Delete, Patch, Upsert
from tandem.stages.items import ItemRecord, ItemsQuery
from tandem.stages.neighbours import ShardNeighbourQuery
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import Shard
from tests.support.engines.contract_record import DIFFERS
from tests.support.engines.shard_kinds import INDEX, Kind
from tests.support.item_store.made_items import (
    DIMENSION,
    FINGERPRINT,
    image_item,
    text_item,
    unit_vector,
)


def soon() -> Deadline:
    """Returns a deadline that no test reaches."""
    return Deadline.after(60.0)


async def store(shard: Shard, *items: ItemRecord, index_id: str = INDEX) -> int:
    """Stores the items, and returns the sequence."""
    return (await shard.write(Upsert(index_id, FINGERPRINT, items), soon())).sequence


async def delete(shard: Shard, *item_ids: str) -> int:
    """Deletes the items, and returns how many there were."""
    return (await shard.write(Delete(INDEX, item_ids), soon())).deleted_count


def query(*seeds: int, **changed: object) -> ShardQuery:
    """Returns a search for texts near the vectors of the seeds."""
    asked = ShardQuery(
        INDEX, FINGERPRINT, Modality.TEXT, Modality.IMAGE, 10, [*map(unit_vector, seeds or (1,))]
    )
    return replace(asked, **changed)  # type: ignore[arg-type]


async def found(shard: Shard, asked: ShardQuery) -> list[list[str]]:
    """Returns the ids that each embedding finds."""
    answer = await shard.search(asked, soon())
    return [[hit.item_id for hit in each.hits] for each in answer.found]


Call = Callable[[Shard, str], Awaitable[object]]
READS: dict[str, Call] = {
    "search": lambda shard, index_id: shard.search(query(index_id=index_id), soon()),
    "get": lambda shard, index_id: shard.get(ItemsQuery(index_id, ["a"]), soon()),
    "encodings": lambda shard, index_id: shard.get(
        ItemsQuery(index_id, ["a"], encodings_included=True), soon()
    ),
    "patch": lambda shard, index_id: shard.write(Patch(index_id, [ItemPatch("a")]), soon()),
    "delete": lambda shard, index_id: shard.write(Delete(index_id, ["a"]), soon()),
    "delete_index": lambda shard, index_id: shard.delete_index(index_id, soon()),
    "list_item_ids": lambda shard, index_id: shard.list_item_ids(index_id, "", 1, soon()),
    "describe_index": lambda shard, index_id: shard.describe_index(index_id, soon()),
    "find_neighbours": lambda shard, index_id: shard.find_neighbours(
        neighbours_of(index_id=index_id), soon()
    ),
}
"""The calls that need an index."""


def neighbours_of(**changed: object) -> ShardNeighbourQuery:
    """Returns a query about two candidates."""
    nodes = np.stack([unit_vector(seed) for seed in (0, 4, 3)])
    asked = ShardNeighbourQuery(INDEX, FINGERPRINT, nodes, 5, 2, 1)
    return replace(asked, **changed)  # type: ignore[arg-type]


async def test_an_acknowledged_item_is_found_read_and_deleted(shard: Shard) -> None:
    """From the answer on, by each embedding, and only under its own modality."""
    sequence = await store(shard, text_item("a", 1), text_item("b", 2), image_item("c", 3))

    answer = await shard.search(query(2, 1), soon())
    assert [[hit.item_id for hit in each.hits] for each in answer.found] == [["b", "a"], ["a", "b"]]
    assert answer.item_count == 2
    assert answer.applied_sequence >= sequence >= 3
    expected = [1.0, float(unit_vector(1) @ unit_vector(2))]
    similarities = [hit.similarity for hit in answer.found[0].hits]
    assert similarities == pytest.approx(expected, abs=1e-6)
    assert await found(shard, query(modality=Modality.IMAGE)) == [["c"]]

    assert await delete(shard, "a", "gone") == 1
    assert await found(shard, query()) == [["b"]]
    assert (await shard.get(ItemsQuery(INDEX, ["a"]), soon())).items == {}


async def test_an_item_stored_again_replaces_the_old_one(shard: Shard) -> None:
    """Also in the other modality: an id is unique in its index."""
    await store(shard, text_item("a", 1), text_item("b", 2))
    await store(shard, text_item("a", 3))
    assert (await found(shard, query(3)))[0][0] == "a"
    await store(shard, image_item("a", 1))

    assert await found(shard, query()) == [["b"]]
    assert await found(shard, query(modality=Modality.IMAGE)) == [["a"]]


async def test_hits_bring_the_embeddings_that_were_compared(shard: Shard) -> None:
    """Rows were replaced and deleted, and there are several queries."""
    await store(shard, *(text_item(f"{n}", n) for n in range(40)))
    await store(shard, *(text_item(f"{n}", 100 + n) for n in range(5)))
    await delete(shard, "7")

    answer = await shard.search(query(2, 104, retrieve_k=30, embeddings_included=True), soon())

    for seed, each in zip([2, 104], answer.found, strict=True):
        assert len(each.hits) == 30
        assert each.embeddings is not None
        for hit, embedding in zip(each.hits, each.embeddings, strict=True):
            number = int(hit.item_id)
            assert np.array_equal(embedding, unit_vector(number + (100 if number < 5 else 0)))
            assert embedding @ unit_vector(seed) == pytest.approx(hit.similarity, abs=1e-6)
    assert (await shard.search(query(), soon())).found[0].embeddings is None


async def test_an_embedding_is_the_one_that_was_compared_while_it_changes(shard: Shard) -> None:
    await store(shard, text_item("a", 0))

    async def replace_it() -> None:
        for seed in range(60):
            await store(shard, text_item("a", seed))

    writing = asyncio.create_task(replace_it())
    count = 0
    while not writing.done():
        [answered] = (await shard.search(query(embeddings_included=True), soon())).found
        assert answered.embeddings is not None
        similarity = answered.embeddings[0] @ unit_vector(1)
        assert similarity == pytest.approx(answered.hits[0].similarity, abs=1e-6)
        count += 1
        await asyncio.sleep(0)  # A search in this process may end without leaving the loop.
    await writing
    assert count > 2


async def test_a_filter_finds_what_it_holds_of(shard: Shard) -> None:
    await store(
        shard,
        replace(text_item("a", 1), attributes={"colour": "red"}),
        replace(text_item("b", 1), attributes={"colour": "blue"}),
        text_item("c", 1),
    )
    red_or_none = OneOf("colour", ("red",)) | ~Exists("colour")

    where = checked_filter(filter_to_proto(red_or_none))

    assert await found(shard, query(filter=where)) == [["a", "c"]]


async def test_words_find_items_with_a_similarity_to_each_embedding(
    shard: Shard, kind: Kind, record_property: Callable[[str, str], None]
) -> None:
    """An engine without words says so in its answer."""
    tea = replace(text_item("a", 1), content=TextContent("a cup of tea"))
    await store(shard, tea, text_item("b", 2))

    answer = await shard.search(
        query(1, 2, keywords="tea", retrieve_k=1, embeddings_included=True), soon()
    )

    words = answer.keyword_found
    assert words is not None
    if not kind.finds_words:
        record_property(DIFFERS, "no: the answer says so")
        assert (words.state, list(words.hits)) == (KeywordState.DISABLED, [])
        return
    assert words.state is KeywordState.SEARCHED
    assert [hit.item_id for hit in words.hits] == ["a"]
    assert words.hits[0].score > 0
    expected = [1.0, float(unit_vector(1) @ unit_vector(2))]
    assert np.concatenate(words.similarities) == pytest.approx(expected, abs=1e-6)
    assert words.embeddings is not None
    assert np.array_equal(words.embeddings[0], unit_vector(1))
    assert (await shard.search(query(), soon())).keyword_found is None


async def test_items_are_read_whole_bare_or_with_encodings(shard: Shard) -> None:
    """In the order of the ids, without those that are not there."""
    text, image = replace(text_item("a", 1), attributes={"n": 3, "tags": ("x",)}), image_item("b")
    await store(shard, text, image)

    whole = await shard.get(ItemsQuery(INDEX, ["b", "gone", "a"]), soon())
    bare = await shard.get(ItemsQuery(INDEX, ["a"], content_included=False), soon())
    encoded = await shard.get(ItemsQuery(INDEX, ["b", "a"], encodings_included=True), soon())

    assert list(whole.items) == ["b", "a"]
    assert (whole.items["b"].content, whole.items["a"].content) == (image.content, text.content)
    assert whole.items["a"].attributes == bare.items["a"].attributes == text.attributes
    assert (bare.items["a"].content, bare.items["a"].encoding, bare.fingerprint) == (None, None, "")
    assert encoded.fingerprint == FINGERPRINT
    for item in (text, image):
        read = encoded.items[item.item_id].encoding
        assert read is not None
        assert np.array_equal(read.embedding, item.encoding.embedding)
        assert type(read.tokens) is type(item.encoding.tokens)


async def test_a_read_ends_where_its_bytes_end_and_after_one_item_at_least(shard: Shard) -> None:
    await store(shard, text_item("a", 1), text_item("b", 2), text_item("c", 3))
    for max_bytes, expected in ((1, ["a"]), (1 << 20, ["a", "b", "c"])):
        fetched = await shard.get(ItemsQuery(INDEX, ["a", "b", "c"], max_bytes=max_bytes), soon())
        assert (list(fetched.items), fetched.read_count) == (expected, len(expected))


async def test_a_damaged_item_is_refused_by_name_and_keeps_no_other_from_being_found(
    kind: Kind, tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    """Another write repairs it."""
    if kind.finds_damaged:
        record_property(DIFFERS, "yes, and a search still finds it")
    folder = tmp_path / "shard"
    async with kind.open(folder) as shard:
        await store(shard, *(text_item(item_id, 1) for item_id in "abc"))
    kind.damage(folder, "b")

    async with kind.open(folder) as shard:
        finds = ["a", "b", "c"] if kind.finds_damaged else ["a", "c"]
        assert await found(shard, query()) == [finds]
        with pytest.raises(errors.ItemCorrupt) as caught:
            await shard.get(ItemsQuery(INDEX, ["b"]), soon())
        assert caught.value.metadata["item_id"] == "b"
        await store(shard, text_item("b", 1))
        assert await found(shard, query()) == [["a", "b", "c"]]
        assert list((await shard.get(ItemsQuery(INDEX, ["b"]), soon())).items) == ["b"]


async def test_one_read_ends_at_its_bytes(shard: Shard) -> None:
    """Three pictures of 6 MiB exceed what a shard reads at once; one is read whatever its size."""
    await store(
        shard,
        *(replace(image_item(i, 1), content=ImageContent(bytes(6 * 2**20))) for i in "abc"),
    )

    async def read(item_ids: str, max_bytes: int = 0) -> tuple[str, int]:
        got = await shard.get(ItemsQuery(INDEX, item_ids, max_bytes=max_bytes), soon())
        return "".join(got.items), got.read_count

    assert await read("axbc") == ("ab", 3)
    assert await read("cb", 1_000) == ("c", 1)
    assert await read("cb", 2**40) == ("cb", 2)
    assert await read("x") == ("", 1)


async def test_ids_are_listed_in_byte_order_after_any_id(shard: Shard) -> None:
    """Also after one that is not there, and never another index's."""
    await store(shard, *(text_item(item_id, 1) for item_id in ("b", "a", "é", "a2", "Z")))
    await store(shard, text_item("other"), index_id="others")

    async def listed(after: str, count: int) -> Sequence[str]:
        return await shard.list_item_ids(INDEX, after, count, soon())

    assert await listed("", 100) == ["Z", "a", "a2", "b", "é"]
    assert await listed("a1", 1) == ["a2"]
    assert await listed("é", 1) == []
    for count in (0, 1_001):
        with pytest.raises(errors.BatchSizeOutOfRange):
            await listed("", count)


async def test_indexes_are_listed_and_described(shard: Shard) -> None:
    """In byte order, all or some of those that are asked for."""
    await store(shard, text_item("a", 1), image_item("b", 1), image_item("c", 2), index_id="pets")
    await store(shard, image_item("a", 1), index_id="cars")
    cars, pets = (
        IndexSummary("cars", FINGERPRINT, 0, 1),
        IndexSummary("pets", FINGERPRINT, 1, 2),
    )

    async def listed(after: str = "", count: int = 10, *among: str) -> Sequence[IndexSummary]:
        return await shard.list_indexes(after, count, among, soon())

    assert await listed() == [cars, pets]
    assert await listed("", 1) == [cars]
    assert await listed("cars") == [pets]
    assert await listed("", 10, "pets", "nowhere") == [pets]
    for odd in (0, 1_001):
        with pytest.raises(errors.BatchSizeOutOfRange):
            await listed("", odd)
    described = await shard.describe_index("pets", soon())
    assert (described.fingerprint, described.embedding_dimension) == (FINGERPRINT, DIMENSION)
    assert [(part.modality, part.item_count) for part in described.parts] == [
        (Modality.TEXT, 1),
        (Modality.IMAGE, 2),
    ]


async def test_a_dropped_index_is_gone_and_others_stay(shard: Shard) -> None:
    await store(shard, text_item("a"), text_item("b"))
    await store(shard, text_item("a"), index_id="others")

    dropped = await shard.delete_index(INDEX, soon())

    assert (dropped.count, dropped.is_complete) == (2, True)
    with pytest.raises(errors.IndexNotFound):
        await found(shard, query())
    assert await found(shard, query(index_id="others")) == [["a"]]


async def test_an_emptied_index_is_found_empty(shard: Shard) -> None:
    await store(shard, text_item("a"))
    await delete(shard, "a")

    assert await found(shard, query()) == [[]]


async def test_a_repeated_write_gets_the_first_answer(shard: Shard) -> None:
    """An id with other items is refused."""
    items = [text_item("a", 1), text_item("b", 1)]
    upsert = Upsert(INDEX, FINGERPRINT, items, "x" * 64)
    removal = Delete(INDEX, ["a"], "d")

    upserted = [(await shard.write(upsert, soon())).sequence for _ in range(2)]
    removed = [await shard.write(removal, soon()) for _ in range(2)]

    assert upserted[0] == upserted[1]
    assert [each.deleted_count for each in removed] == [1, 1]
    assert upserted[0] < removed[0].sequence == removed[1].sequence
    with pytest.raises(errors.RequestIdReused):
        await shard.write(Delete(INDEX, ["b"], "d"), soon())
    assert await found(shard, query()) == [["b"]]


async def test_a_search_sees_the_sequence_that_it_asks_for(shard: Shard, kind: Kind) -> None:
    """It waits for a later write, and names a sequence that does not come before its deadline."""
    if not kind.counts_changes:
        pytest.skip("a sequence is a time, which comes without a write")
    await store(shard, text_item("a", 1))
    waiting = asyncio.create_task(shard.search(query(minimum_sequence=2), soon()))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await store(shard, text_item("b", 1))
    assert [hit.item_id for hit in (await waiting).found[0].hits] == ["a", "b"]

    start_time = time.monotonic()
    with pytest.raises((errors.SequenceNotReached, errors.DeadlineExceeded)):
        await shard.search(query(minimum_sequence=7), Deadline.after(0.5))
    assert time.monotonic() - start_time >= 0.3


async def test_neighbours_are_those_of_each_node(shard: Shard) -> None:
    """The query is text "a", the candidates the images "y" and "x"."""
    texts = [text_item(name, seed) for seed, name in enumerate("abc")]
    await store(shard, *texts, image_item("x", 3), image_item("y", 4))

    stage = ("tandem_index_stage_duration_seconds_count", {"stage": "neighbours"})
    done = REGISTRY.get_sample_value(*stage) or 0

    neighbours = await shard.find_neighbours(neighbours_of(), soon())

    assert REGISTRY.get_sample_value(*stage) == done + 1
    own, images = neighbours[Modality.TEXT], neighbours[Modality.IMAGE]
    assert own.pillars[0] == pytest.approx(unit_vector(0))
    assert (len(own.pillars), len(images.pillars)) == (2, 2)
    assert images.similarities[1:, 0] == pytest.approx([1.0, 1.0])
    assert images.numbers[1, 0] != images.numbers[2, 0]
    products = (
        np.stack([unit_vector(seed) for seed in (0, 4, 3)])
        @ np.stack([unit_vector(seed) for seed in range(3)]).T
    )
    assert own.similarities[:, 0] == pytest.approx(products.max(axis=1), abs=1e-6)


async def test_a_patch_changes_attributes_alone_and_in_order(shard: Shard) -> None:
    """A missing item, and one that would have too many, keep the others from nothing."""
    old: Attributes = {"style": "noto", "count": 2, "real": 2.0, "tags": ("a", "b")}
    many = {f"a{n}": n for n in range(64)}
    for item in (text_item("a", 1), image_item("b", 3)):
        await store(shard, replace(item, attributes=old))
    await store(shard, replace(text_item("full", 2), attributes=many))

    patches = [
        ItemPatch("a", {"count": 3}, ["style", "never"]),
        ItemPatch("b", {"price": 1.5}, attributes_replaced=True),
        ItemPatch("gone", {"price": 1.5}),
        ItemPatch("full", {"price": 1.5}),
        ItemPatch("a", {"count": 4}),
    ]
    committed = await shard.write(Patch(INDEX, patches, "r"), soon())

    assert {i: "64" in why for i, why in committed.failures.items()} == {
        "gone": False,
        "full": True,
    }
    assert committed.failures["gone"] == ""
    fetched = await shard.get(ItemsQuery(INDEX, ["a", "b"], encodings_included=True), soon())
    a, b = fetched.items["a"], fetched.items["b"]
    assert (
        repr(sorted(a.attributes.items())) == "[('count', 4), ('real', 2.0), ('tags', ('a', 'b'))]"
    )
    assert (b.attributes, b.content) == ({"price": 1.5}, image_item("b", 3).content)
    assert a.encoding is not None
    assert np.array_equal(a.encoding.embedding, unit_vector(1))
    for count, ids in ((4, ["a"]), (2, [])):
        where = OneOf("count", (count,))
        asked = checked_filter(filter_to_proto(where))
        assert await found(shard, query(filter=asked)) == [ids], where
    again = await shard.write(Patch(INDEX, patches, "r"), soon())
    assert (again.sequence, again.failures) == (committed.sequence, committed.failures)
    with pytest.raises(errors.RequestIdReused):
        await shard.write(Patch(INDEX, patches[:1], "r"), soon())


async def test_a_selection_lists_the_ids_that_fit_all_of_it(shard: Shard) -> None:
    """Page by page; brackets, percent signs and underscores stand for themselves."""
    ids = ["100%x", "1005x", "2024/01/a_b.jpg", "2024/01/a_c.jpg", "2024/02/[1].jpg", "écru"]
    for number, item_id in enumerate(ids):
        item = text_item(item_id, number)
        await store(shard, replace(item, attributes={"n": 1} if number == 3 else {}))
    of_3 = checked_filter(filter_to_proto(Exists("n")))

    for selection, expected in (
        (ItemSelection("2024/"), ids[2:5]),
        (ItemSelection(id_glob="2024/*/a_?.jpg"), ids[2:4]),
        (ItemSelection(id_glob="*[1]*"), ids[4:5]),
        (ItemSelection(id_glob="100%?"), ids[:1]),
        (ItemSelection("2024/01", "2024/02*"), []),
        (ItemSelection("2024/", filter=of_3), ids[3:4]),
        (ItemSelection("1", filter=of_3), []),
        (ItemSelection(id_glob="*"), sorted(ids)),
    ):
        listed: list[str] = []
        while page := await shard.list_item_ids(
            INDEX, max(listed, default=""), 2, soon(), selection
        ):
            listed += page
        assert listed == expected, selection


async def test_an_unknown_index_is_not_found(shard: Shard) -> None:
    """By any call; an id outside a record is checked too."""
    for name, call in READS.items():
        with pytest.raises(errors.IndexNotFound) as caught:
            await call(shard, "nowhere")
        assert caught.value.metadata == {"index_id": "nowhere"}, name
    for name in ("delete_index", "list_item_ids", "describe_index"):
        with pytest.raises(errors.IndexIdInvalid):
            await READS[name](shard, "Not An Id")


async def test_another_model_is_refused_by_name(shard: Shard) -> None:
    """For queries, for neighbours, and for items, of which none is stored."""
    await store(shard, text_item("a", 1))

    for call in (
        shard.search(query(fingerprint="model-b"), soon()),
        shard.find_neighbours(neighbours_of(fingerprint="model-b"), soon()),
        shard.write(Upsert(INDEX, "model-b", [text_item("b", 1)]), soon()),
    ):
        with pytest.raises(errors.ModelMismatch) as caught:
            await call
        assert caught.value.metadata == {
            "request_fingerprint": "model-b",
            "index_fingerprint": FINGERPRINT,
        }
    assert await found(shard, query()) == [["a"]]


async def test_another_dimension_is_refused(shard: Shard) -> None:
    await store(shard, text_item("a", 1))

    for call in (
        shard.search(query(embeddings=[unit_vector(1, 16)]), soon()),
        shard.write(Upsert(INDEX, FINGERPRINT, [text_item("b", 1, 16)]), soon()),
    ):
        with pytest.raises(errors.EmbeddingInvalid, match="16"):
            await call


async def test_no_time_left_is_deadline_exceeded(shard: Shard) -> None:
    await store(shard, text_item("a", 1))

    with pytest.raises(errors.DeadlineExceeded):
        await shard.search(query(minimum_sequence=2), Deadline.after(0.0))
