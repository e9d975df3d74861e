"""Calls of an alias go to one generation, whichever serves, and lose nothing in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tandem.contract.search.item_changes import ItemListing, ItemsRemoval
from tandem.contract.search.query import PageQuery
from tandem.errors import (
    CursorInvalid,
    GenerationRefused,
    IndexIdInvalid,
    IndexNotFound,
    ModelMismatch,
    ServiceUnavailable,
    TandemError,
)
from tandem.search.orchestrator import Orchestrator
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token, switch_count_of
from tandem.stages.aliases import AliasRecord, Generation
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemsQuery
from tandem.stages.notes import SetWriter
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import ShardAnswer
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.item_store.made_items import text_item
from tests.support.orchestrator_svc.generations import (
    MODELS,
    begin_promotion,
    end_promotion,
    ids_of,
    in_time,
    ingest,
    orchestrator_over,
    query_of,
    stored_ids,
    two_generations,
)
from tests.support.orchestrator_svc.local_shards import until


async def promote(shards: Sequence[Any], orchestrator: Orchestrator, serving: str) -> None:
    """Has the other generation serve, in a term of its own."""
    term = orchestrator.router.book.record("photos").revision + 1
    await begin_promotion(shards, serving, term)
    await end_promotion(shards, orchestrator.router.book, serving, term)


class ResolvingShard:
    """Finds the serving generation in each call of a shard, as a router must not."""

    def __init__(self, shard: Any, known: Orchestrator) -> None:
        self._shard = shard
        self._known = known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    async def notes(self, *arguments: object) -> Sequence[object]:
        return ()

    async def search(self, query: ShardQuery, *arguments: object) -> ShardAnswer:
        await asyncio.sleep(random.random() / 500)
        serving = self._known.router.book.record("photos").serving
        own = replace(query, index_id=serving, fingerprint=MODELS[serving])
        answer: ShardAnswer = await self._shard.search(own, *arguments)
        return answer


@pytest.mark.parametrize("is_resolved_once", [True, False])
async def test_no_answer_mixes_generations(tmp_path: Path, *, is_resolved_once: bool) -> None:
    """While they are switched under single, streamed and batched searches.

    The control finds mixed answers, or fails, where each shard finds the generation by itself.
    """
    async with two_generations(tmp_path) as (shards, orchestrator):
        for number, shard in enumerate(shards):
            for index_id, model in MODELS.items():
                items = [text_item(f"{index_id}/{number}/{n}", n) for n in range(10)]
                term = 1 if index_id == "photos@2" else 0
                await shard.write(Upsert(index_id, model, items, term=term), in_time())
        asked = orchestrator
        if not is_resolved_once:
            asked = orchestrator_over([ResolvingShard(e, orchestrator) for e in shards], "model-a")
        found: list[set[str]] = []

        async def search() -> None:
            while len(found) < 300:
                answers = [await asked.search(query_of(), in_time())]
                answers += [each async for each in asked.stream(query_of(), in_time())]
                batch = await asked.search_each([query_of()] * 2, in_time())
                answers += [each for each in batch if not isinstance(each, TandemError)]
                assert len(answers) == 5
                for each in answers:
                    assert len(each.items) == 20
                    found.append({item_id.partition("/")[0] for item_id in ids_of(each)})

        async def switch() -> None:
            book = orchestrator.router.book
            while len(found) < 300:
                record = book.record("photos")
                other = "photos" if record.serving == "photos@2" else "photos@2"
                await book.put(replace(record, serving=other), in_time())
                await asyncio.sleep(0.001)

        await asyncio.gather(search(), search(), search(), switch())
        await asked.router.book.close()
    are_mixed = [len(each) > 1 for each in found]
    assert any(are_mixed) is not is_resolved_once
    if is_resolved_once:
        assert {name for each in found for name in each} == set(MODELS)


async def test_no_write_is_lost_while_generations_are_switched(tmp_path: Path) -> None:
    """None fails, none is stored in another generation alone, and own writes are seen by token.

    The other orchestrator reads aliases late, as one that was paused.
    """
    async with two_generations(tmp_path) as (shards, orchestrator):
        late = orchestrator_over(shards, "model-a", "model-b")
        await late.router.book.begin(in_time())
        await late.router.book.close()
        kept: set[str] = set()
        is_over = False

        async def write(name: str, own: Orchestrator, other: Orchestrator) -> None:
            number = 0
            while not is_over:
                number += 1
                ids = [f"{name}-{number}-{n}" for n in range(3)]
                outcomes = await ingest(own, *ids, request_id=f"{name}-{number}")
                assert [each.error for each in outcomes] == [None] * 3
                removal = await own.remove(
                    ItemsRemoval(
                        index_id="photos", item_ids=ids[:1], request_id=f"r-{name}-{number}"
                    ),
                    in_time(),
                )
                assert removal.removed_count == 1
                kept.update(ids[1:])
                query = query_of(ids[1], return_n=1, tokens=[removal.consistency_token])
                assert ids_of(await other.search(query, in_time())) == {ids[1]}

        async def switch() -> None:
            nonlocal is_over
            for serving in (*MODELS, *MODELS, *MODELS):
                await asyncio.sleep(0.1)
                await promote(shards, orchestrator, serving)
            is_over = True

        await asyncio.gather(
            write("a", orchestrator, late), write("b", late, orchestrator), switch()
        )
        stored = [await stored_ids(each, "photos") for each in shards]
        assert sorted(item_id for ids in stored for item_id in ids) == sorted(kept)


async def test_only_the_part_that_a_shard_refused_is_written_again(tmp_path: Path) -> None:
    """Also where the caller repeats the whole batch, which is not stored twice."""
    async with two_generations(tmp_path) as (shards, orchestrator):
        ids = [f"item-{n}" for n in range(8)]
        await shards[1].write(SetWriter("photos", 2, is_open=False), in_time())
        writing = asyncio.create_task(ingest(orchestrator, *ids, request_id="once"))
        while not (first := await stored_ids(shards[0], "photos")):  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.01)
        await shards[0].write(SetWriter("photos", 2, is_open=False), in_time())
        await end_promotion(shards, orchestrator.router.book, "photos", 2)
        assert all(each.error is None for each in await writing)
        assert await stored_ids(shards[1], "photos") == []
        assert sorted(first + await stored_ids(shards[1], "photos@2")) == ids
        assert await stored_ids(shards[0], "photos@2") == first

        changes = [await each.changes(0, 100, in_time()) for each in shards]
        again = await ingest(orchestrator, *ids, request_id="once")
        assert all(each.error is None for each in again)
        assert [await each.changes(0, 100, in_time()) for each in shards] == changes


async def test_a_write_to_a_closed_index_fails_by_name_in_the_end(tmp_path: Path) -> None:
    async with two_generations(tmp_path) as (shards, orchestrator):
        await begin_promotion(shards, "photos", 2)
        ingester = orchestrator.ingest_stream._ingester

        async def check(factor: float) -> None:
            ingester._batch_timeout_seconds = 0.3 * factor
            [outcome] = await ingest(orchestrator, "item")
            assert outcome.error is not None
            assert outcome.error.reason == "WRITER_REFUSED"

        await holds_with_longer_times(check)


async def test_a_cursor_keeps_its_generation_until_that_is_dropped(tmp_path: Path) -> None:
    async with two_generations(tmp_path) as (shards, orchestrator):
        await ingest(orchestrator, *(f"item-{n}" for n in range(6)))
        first = await orchestrator.search(query_of(return_n=2), in_time())
        await promote(shards, orchestrator, "photos")
        page = PageQuery(
            index_id="photos", cursor=first.next_cursor, return_n=2, content_included=True
        )
        second = await orchestrator.page(page, in_time())
        assert all(each.content is not None for each in second.items)
        assert second.model_fingerprint == "model-a"

        book = orchestrator.router.book
        only = (Generation("photos@2", "model-b"),)
        await book.put(replace(book.record("photos"), generations=only), in_time())
        with pytest.raises(CursorInvalid, match="generation photos was dropped"):
            await orchestrator.page(replace(page, cursor=second.next_cursor), in_time())
        fresh = await orchestrator.search(query_of(return_n=2), in_time())
        page = replace(page, cursor=fresh.next_cursor)
        assert (await orchestrator.page(page, in_time())).model_fingerprint == "model-b"


async def test_searches_continue_without_shard_0(tmp_path: Path) -> None:
    """By the last alias known, also in an orchestrator that starts then; a later write is missed by
    none, but refused.
    """
    async with two_generations(tmp_path) as (shards, orchestrator):
        await ingest(orchestrator, *(f"item-{n}" for n in range(8)))
        await promote(shards, orchestrator, "photos")
        await orchestrator.router.book.copied()
        shards[0].is_away = True
        fresh = orchestrator_over(shards, "model-a", "model-b")
        for each in (orchestrator, fresh):
            answer = await each.search(query_of(), in_time())
            assert answer.model_fingerprint == "model-b"
            assert len(answer.items) == len(await stored_ids(shards[1], "photos@2"))
            later = make_token({}, each.stored_items._shard_map, {"photos": 2})
            with pytest.raises(ServiceUnavailable):
                await each.search(query_of(tokens=[later]), in_time())
        await fresh.router.book.close()


async def test_a_generation_is_searched_and_not_written_by_name(tmp_path: Path) -> None:
    async with two_generations(tmp_path) as (shards, orchestrator):
        await ingest(orchestrator, "first")
        await promote(shards, orchestrator, "photos")
        await ingest(orchestrator, "second")
        assert ids_of(await orchestrator.search(query_of(), in_time())) == {"first", "second"}
        for name, count in {"photos": 2, "photos@2": 2}.items():
            both = ItemsQuery(name, ["first", "second"])
            described = await orchestrator.describe_index(name, in_time())
            assert described.coverage.covered_item_count == count
            assert len(await orchestrator.fetch_items(both, in_time())) == 2
            listed, _ = await orchestrator.list_items(ItemListing(index_id=name), in_time())
            assert [each.item_id for each in listed] == ["first", "second"]
        for refused in (
            ingest(orchestrator, "third", index_id="photos@2"),
            orchestrator.remove(ItemsRemoval(index_id="photos@2", item_ids=["first"]), in_time()),
            orchestrator.remove_index("photos@2", in_time()),
        ):
            with pytest.raises(IndexIdInvalid, match="write to 'photos'"):
                await refused
        with pytest.raises(IndexNotFound, match=r"no index 'photos@9'; there are photos;"):
            await orchestrator.search(query_of(index_id="photos@9"), in_time())


async def test_an_alias_is_listed_once_with_the_items_of_what_serves(tmp_path: Path) -> None:
    """In the order of aliases, on pages of any size."""
    async with two_generations(tmp_path) as (shards, orchestrator):
        for index_id in ("photos", "a", "photos-2", "photosa", "photos0"):
            await ingest(orchestrator, "one", index_id=index_id)
        await promote(shards, orchestrator, "photos")
        await ingest(orchestrator, "two")
        for size in (1, 2, 3, 10):
            counts: dict[str, int] = {}
            after = ""
            while True:
                page = await orchestrator.index_list.page(after, size, in_time())
                assert len(page.indexes) <= size
                counts |= {each.index_id: each.text_count for each in page.indexes}
                if not (after := page.last):
                    break
            assert list(counts.items()) == [
                ("a", 1),
                ("photos", 2),
                ("photos-2", 1),
                ("photos0", 1),
                ("photosa", 1),
            ]


async def test_an_index_with_several_generations_is_not_removed(tmp_path: Path) -> None:
    """With one it is, and the next items go to that one, whose first model may be any."""
    async with two_generations(tmp_path) as (shards, orchestrator):
        await ingest(orchestrator, "one")
        await promote(shards, orchestrator, "photos")
        with pytest.raises(GenerationRefused, match="generations photos, photos@2; drop all but"):
            await orchestrator.remove_index("photos", in_time())
        book = orchestrator.router.book
        only = (Generation("photos@2", "model-b"),)
        await book.put(replace(book.record("photos"), generations=only), in_time())
        assert (await orchestrator.remove_index("photos", in_time())).removed_count == 1
        with pytest.raises(IndexNotFound, match="no index 'photos'"):
            await orchestrator.search(query_of(), in_time())
        [outcome] = await ingest(orchestrator, "two")
        assert outcome.error is None
        answer = await orchestrator.search(query_of(), in_time())
        assert (ids_of(answer), answer.model_fingerprint) == ({"two"}, "model-a")
        assert [await stored_ids(each, "photos@2") for each in shards].count(["two"]) == 1


async def test_models_are_found_by_fingerprint(tmp_path: Path) -> None:
    """Of an index without a record too; without one of a generation's, the error names it."""
    async with two_generations(tmp_path) as (shards, orchestrator):
        await ingest(orchestrator, "one")
        await promote(shards, orchestrator, "photos")
        await ingest(orchestrator_over(shards, "model-b"), "two", index_id="plain")
        exchanged = orchestrator_over(shards, "model-b", "model-a")
        for each in (orchestrator, exchanged):
            for index_id, found in {"photos": "one", "plain": "two"}.items():
                query = query_of(index_id=index_id)
                answer = await each.search(query, in_time())
                assert (ids_of(answer), answer.model_fingerprint) == ({found}, "model-b")
                [batched] = await each.search_each([query], in_time())
                assert not isinstance(batched, TandemError)
            [outcome] = await ingest(each, "two", index_id="plain")
            assert outcome.error is None

        lacking = orchestrator_over(shards, "model-a")
        with pytest.raises(ModelMismatch, match="photos@2 is of model model-b, and the encoders"):
            await lacking.search(query_of(), in_time())
        [outcome] = await ingest(lacking, "three")
        assert outcome.error is not None
        assert outcome.error.reason == "MODEL_MISMATCH"
        for each in (exchanged, lacking):
            await each.router.book.close()


async def test_an_own_write_is_seen_where_aliases_are_known_late(tmp_path: Path) -> None:
    """By its token; without one, once the orchestrator has read the aliases again."""
    async with two_generations(tmp_path) as (shards, orchestrator):
        late, other = (orchestrator_over(shards, "model-a", "model-b") for _ in range(2))
        for each in (late, other):
            await each.router.book.begin(in_time())
        await late.router.book.close()
        await ingest(orchestrator, "old")
        await promote(shards, orchestrator, "photos")
        [outcome] = await ingest(orchestrator, "new")
        assert ids_of(await late.search(query_of(), in_time())) == {"old"}
        query = query_of(tokens=[outcome.consistency_token])
        assert ids_of(await late.search(query, in_time())) == {"old", "new"}
        await until(lambda: other.router.book.record("photos").serving == "photos@2")
        await other.router.book.close()


async def test_a_generation_that_was_dropped_is_not_searched_for_long(tmp_path: Path) -> None:
    """Where its end was not read yet, single and batched searches go to the one that serves."""
    async with two_generations(tmp_path) as (shards, orchestrator):
        await ingest(orchestrator, "old")
        late = [orchestrator_over(shards, "model-a", "model-b") for _ in range(2)]
        for each in late:
            await each.router.book.begin(in_time())
            await each.router.book.close()
        await promote(shards, orchestrator, "photos")
        for shard in shards:
            with suppress(IndexNotFound):
                await shard.delete_index("photos", in_time())
        assert ids_of(await late[0].search(query_of(), in_time())) == {"old"}
        [answer] = await late[1].search_each([query_of()], in_time())
        assert not isinstance(answer, TandemError)
        assert ids_of(answer) == {"old"}


def test_a_token_names_switches_only_where_there_were_any() -> None:
    """Others are as an earlier release gave and reads them."""
    shard_map = ShardMap(4)
    plain = make_token({3: 7}, shard_map)
    assert make_token({3: 7}, shard_map, {"photos": 0}) == plain
    told = make_token({3: 7}, shard_map, {"photos": 2, "cats": 0})
    assert switch_count_of([plain, told], "photos") == 2
    assert switch_count_of([plain, told], "cats") == 0
    assert AliasRecord.of_index("cats").switch_count == 0
