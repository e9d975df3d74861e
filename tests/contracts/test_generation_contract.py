"""What generations need of every shard: notes, rules of who writes, and changes without a gap."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tandem import errors
from tandem.stages.item_write import Committed, Delete, ShardWrite, Upsert
from tandem.stages.notes import Note, PutNote, SetWriter, WriterRule
from tandem.stages.shard import Shard
from tests.contracts.test_shard_contract import found, query, soon
from tests.support.engines.shard_kinds import INDEX, Kind
from tests.support.item_store.made_items import FINGERPRINT, text_item

NEXT = f"{INDEX}@2"


def upsert(item_id: str, term: int = 0, index_id: str = INDEX, seed: int = 1) -> Upsert:
    return Upsert(index_id, FINGERPRINT, [text_item(item_id, seed)], term=term)


async def outcomes(shard: Shard, *writes: ShardWrite) -> list[type]:
    """Returns of each write whether it was committed, or its error."""
    kinds: list[type] = []
    for write in writes:
        try:
            kinds.append(type(await shard.write(write, soon())))
        except errors.TandemError as error:
            kinds.append(type(error))
    return kinds


async def services(kind: Kind, folder: Path, stack: AsyncExitStack) -> Sequence[Shard]:
    """Returns two services of one shard, where it may have two, else one."""
    return [await stack.enter_async_context(kind.open(folder)) for _ in range(1 + kind.is_shared)]


async def end_of_log(shard: Shard) -> int:
    """Returns where the log stands, of which everything is kept from now on."""
    return (await shard.changes((await shard.changes(0, 1, soon())).sequence, 1, soon())).sequence


async def changed(shard: Shard, after: int, until: int, count: int = 7) -> list[tuple[str, str]]:
    """Returns the changes after a sequence, until that one or the end of the log."""
    seen: list[tuple[str, str]] = []
    while after < until:
        page = await shard.changes(after, count, soon())
        assert page.changes is not None
        seen += [(each.index_id, each.item_id) for each in page.changes]
        after = max([after, *(each.sequence for each in page.changes)])
        if after == page.sequence:
            break
    return seen


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (the writers have no event)
        await asyncio.sleep(0.01)


async def test_of_several_writers_of_a_note_one_wins(kind: Kind, tmp_path: Path) -> None:
    """Each names the revision that it read; a note that was removed keeps its own."""
    async with AsyncExitStack() as stack:
        shards = await services(kind, tmp_path / "shard", stack)
        for revision in range(3):
            writes = [PutNote("alias/a", f"{revision}/{n}", revision) for n in range(6)]
            told = await asyncio.gather(
                *(outcomes(shards[n % len(shards)], write) for n, write in enumerate(writes))
            )
            assert sorted(kinds[0].__name__ for kinds in told) == [
                "Committed",
                *["NoteChanged"] * 5,
            ]
            won = told.index([Committed])
            assert await shards[0].notes("alias/", soon()) == [
                Note("alias/a", f"{revision}/{won}", revision + 1)
            ]
        assert (
            await outcomes(shards[0], PutNote("alias/a", "", 3), PutNote("b", "é'%s{}", 0))
            == [Committed] * 2
        )
        assert await shards[-1].notes("", soon()) == [
            Note("alias/a", "", 4),
            Note("b", "é'%s{}", 1),
        ]
        assert await outcomes(shards[0], PutNote("c", "", 1)) == [errors.NoteChanged]
        assert await shards[0].notes("alias/%", soon()) == []


async def test_a_closed_index_takes_writes_of_its_follower_alone(shard: Shard) -> None:
    """Of the newest term; while it is open, only callers'. Other indexes are open."""
    refused = errors.WriterRefused

    async def tried(*terms: int) -> list[type]:
        writes = [upsert(f"of-{term}", term) for term in terms]
        deletes = [Delete(INDEX, ["none"], term=term) for term in terms]
        told = await outcomes(shard, *writes), await outcomes(shard, *deletes)
        assert told[0] == told[1]
        return told[0]

    async def follows(term: int, *, is_open: bool) -> list[type]:
        return await outcomes(shard, SetWriter(INDEX, term, is_open, progress="{}"))

    assert await tried(0, 2) == [Committed, refused]  # the positive control
    assert await follows(2, is_open=False) == [Committed]
    assert await outcomes(shard, upsert("x", index_id=NEXT)) == [Committed]
    assert await tried(0, 1, 2, 3) == [refused, refused, Committed, Committed]
    assert await follows(1, is_open=True) == [refused]
    assert await follows(4, is_open=False) == [Committed]
    assert await tried(0, 2, 4) == [refused, refused, Committed]
    assert await follows(4, is_open=True) == [Committed]
    assert await tried(0, 4, 9) == [Committed, refused, refused]
    assert sorted((await found(shard, query()))[0]) == ["of-0", "of-2", "of-3", "of-4"]
    [note] = await shard.notes("writer/", soon())
    assert (note.key, WriterRule.of(note)) == (f"writer/{INDEX}", WriterRule(4, True, "{}"))


async def test_a_rule_comes_after_every_write_that_was_acknowledged_before(
    kind: Kind, tmp_path: Path
) -> None:
    """A follower that reads the log up to the rule's sequence misses none of many writers."""
    async with AsyncExitStack() as stack:
        shards = await services(kind, tmp_path / "shard", stack)
        await outcomes(shards[0], *(upsert("first", index_id=each) for each in (INDEX, NEXT)))
        begin = await end_of_log(shards[0])
        done = asyncio.Event()
        acknowledged: dict[str, list[str]] = {INDEX: [], NEXT: []}

        async def write(number: int, index_id: str) -> None:
            with suppress(errors.WriterRefused):
                for n in range(10_000):
                    item_id = f"{number}-{n}"
                    write = upsert(item_id, index_id=index_id)
                    await shards[number % len(shards)].write(write, soon())
                    acknowledged[index_id].append(item_id)
                    if done.is_set():
                        return

        writing = [
            asyncio.create_task(write(n, index_id)) for n in range(6) for index_id in acknowledged
        ]
        await until(lambda: len(acknowledged[INDEX]) >= 20)
        before = list(acknowledged[INDEX])
        rule = await shards[-1].write(SetWriter(INDEX, 1, is_open=False), soon())
        seen = await changed(shards[0], begin, rule.sequence)
        taken = len(acknowledged[NEXT])
        # The positive control: nobody closed it.
        await until(lambda: len(acknowledged[NEXT]) >= taken + 10)
        done.set()
        await asyncio.gather(*writing)

        assert set(before) <= set(acknowledged[INDEX])
        assert set(acknowledged[INDEX]) <= {
            item_id for index_id, item_id in seen if index_id == INDEX
        }
        with pytest.raises(errors.WriterRefused):
            await shards[0].write(upsert("late"), soon())


async def test_notes_and_rules_outlive_a_restart(kind: Kind, tmp_path: Path) -> None:
    async with kind.open(tmp_path / "shard") as shard:
        await outcomes(shard, PutNote("alias/a", "{}", 0), SetWriter(INDEX, 2, is_open=False))
    async with kind.open(tmp_path / "shard") as shard:
        assert await outcomes(shard, upsert("a"), upsert("a", 1), upsert("a", 2)) == [
            errors.WriterRefused,
            errors.WriterRefused,
            Committed,
        ]
        notes = await shard.notes("", soon())
        assert [(note.key, note.revision) for note in notes] == [
            ("alias/a", 1),
            (f"writer/{INDEX}", 1),
        ]


async def test_a_closed_index_can_be_dropped_and_takes_no_write_of_a_caller_then(
    shard: Shard,
) -> None:
    """One that is open can be dropped beside a closed generation of its alias."""
    await outcomes(shard, upsert("a"), SetWriter(NEXT, 3, is_open=False), upsert("a", 3, NEXT))
    assert (await shard.delete_index(INDEX, soon())).count == 1
    assert (await shard.delete_index(NEXT, soon())).count == 1
    callers = upsert("b", index_id=NEXT), Delete(NEXT, ["a"])
    assert await outcomes(shard, *callers) == [errors.WriterRefused] * 2
    assert await outcomes(shard, Delete(INDEX, ["a"])) == [errors.IndexNotFound]
    assert await shard.list_indexes("", 10, (), soon()) == []


async def test_generations_are_indexes_of_their_own(shard: Shard) -> None:
    """Whatever their names have in common."""
    index_ids = [
        "scenes",
        "scenes-2",
        "scenes@2",
        "scenes@20",
        "scenes_2",
        "scenes_a2",
        "scenes_ua2",
    ]
    await outcomes(shard, *(upsert(f"of {each}", index_id=each) for each in index_ids))
    listed = await shard.list_indexes("", 10, (), soon())
    assert [each.index_id for each in listed] == index_ids
    for each in index_ids:
        assert await found(shard, query(index_id=each)) == [[f"of {each}"]]
    assert len(await shard.list_indexes("", 10, ["scenes@2", "scenes@3"], soon())) == 1


async def test_a_repeat_is_recognised_under_another_generation(shard: Shard) -> None:
    """Its items were encoded by another model then."""
    items = [text_item("a", 1)]
    first = await shard.write(Upsert(INDEX, FINGERPRINT, items, "request"), soon())
    await outcomes(shard, SetWriter(INDEX, 1, is_open=False))
    for index_id in (INDEX, NEXT):
        again = await shard.write(Upsert(index_id, "model-b", items, "request"), soon())
        assert again.sequence == first.sequence
    for other in (
        Upsert("other", FINGERPRINT, items, "request"),
        Upsert(NEXT, FINGERPRINT, [text_item("a", 2)], "request"),
    ):
        assert await outcomes(shard, other) == [errors.RequestIdReused]


async def test_two_followers_read_the_same_changes(shard: Shard) -> None:
    """One is behind the other, and each continues where it was."""
    begin = await end_of_log(shard)
    for n in range(5):
        await shard.write(upsert(f"{n}"), soon())
    expected = [(INDEX, f"{n}") for n in range(5)]

    first = [await changed(shard, begin, 2**62, count) for count in (2, 5)]
    await shard.write(Delete(INDEX, ["0"]), soon())
    middle = (await shard.changes(begin, 3, soon())).changes
    assert middle is not None
    behind = [*middle[:3]]
    second = await changed(shard, behind[-1].sequence, 2**62)
    end = (await shard.changes(0, 1, soon())).sequence

    assert first == [expected, expected]
    assert [*names(behind), *second] == [*expected, (INDEX, "0")]
    assert (await shard.changes(end, 1, soon())).sequence == end
    last = (await shard.changes(end - 1, 1, soon())).changes
    assert last is not None
    assert [(each.sequence, each.item_id) for each in last] == [(end, "0")]


def names(changes: Iterable[object]) -> list[tuple[str, str]]:
    return [(each.index_id, each.item_id) for each in changes]  # type: ignore[attr-defined]
