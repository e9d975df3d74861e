"""Alias records, and the book that keeps them, over real stores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tandem.contract.deadline import Deadline
from tandem.errors import InternalFault, NoteChanged, ServiceUnavailable, ShardsMissing
from tandem.search.indexes.alias_book import AliasBook
from tandem.stages.aliases import AliasRecord, Generation, Lease, WantedChange, WantedOutcome
from tandem.stages.notes import Note, PutNote
from tests.support.orchestrator_svc.local_shards import local_shards, until

RECORD = AliasRecord(
    "photos",
    "photos@2",
    (Generation("photos", "a", 1.0), Generation("photos@2", "b", 2.0)),
    next_number=3,
    previous="photos",
    lease=Lease("host/1", 2, 3),
    wanted=WantedChange("promote", "photos@2", why="new", caller="me", asked_time=3.0),
    outcome=WantedOutcome("done"),
)


def in_time() -> Deadline:
    return Deadline.after(10.0)


async def begun(shards: Sequence[Any]) -> AliasBook:
    """Returns another orchestrator's book."""
    book = AliasBook(shards)
    await book.begin(in_time())
    return book


def test_a_record_is_the_same_after_its_json() -> None:
    note = Note("alias/photos", RECORD.value, 7)
    assert AliasRecord.of_note(note) == replace(RECORD, revision=7)


def test_fields_of_a_later_release_are_kept() -> None:
    values = json.loads(RECORD.value)
    values["color"] = {"deep": [1]}
    values["generations"][1]["size"] = 5
    values["lease"]["zone"] = "x"
    read = AliasRecord.of_note(Note("alias/photos", json.dumps(values), 0))
    assert read.serving == "photos@2"
    assert json.loads(read.value) == values


@pytest.mark.parametrize(
    "damage",
    [{"serving": 5}, {"serving": "photos@3"}, {"alias": "cats"}, {"generations": "photos"}],
)
async def test_a_damaged_record_is_no_missing_record(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    """Other aliases are as they were."""
    async with local_shards(tmp_path, 1) as shards:
        value = json.dumps(json.loads(RECORD.value) | damage)
        await shards[0].write(PutNote("alias/photos", value, 0), in_time())
        book = await begun(shards)
        with pytest.raises(InternalFault, match="alias photos is damaged"):
            book.record("photos")
        assert book.record("cats") == AliasRecord.of_index("cats")
        await book.close()


async def test_one_of_two_who_replace_a_record_does(tmp_path: Path) -> None:
    """The other sees it when it reads, and so does a poll; only a switch counts as one."""
    async with local_shards(tmp_path) as shards:
        one, other = await begun(shards), await begun(shards)
        made = await one.put(AliasRecord.of_index("photos"), in_time())
        with pytest.raises(NoteChanged):
            await other.put(AliasRecord.of_index("photos"), in_time())
        await other.refresh(in_time())
        assert other.record("photos") == made
        switched = await other.put(replace(RECORD, revision=made.revision), in_time())
        assert (made.switch_count, switched.switch_count, switched.revision) == (0, 1, 2)
        await until(lambda: one.record("photos") == switched)
        for book in (one, other):
            await book.close()


async def test_without_shard_0_the_last_record_is_known_and_none_is_put(tmp_path: Path) -> None:
    """A start knows it by the copies; where nothing answers, it knows nothing."""
    async with local_shards(tmp_path) as shards:
        book = await begun(shards)
        first = await book.put(RECORD, in_time())
        known = await book.put(replace(first, serving="photos"), in_time())
        await book.copied()

        shards[0].is_away = True
        with pytest.raises(ServiceUnavailable):
            await book.refresh(in_time())
        with pytest.raises(ServiceUnavailable):
            await book.put(known, in_time())
        assert book.record("photos") == known

        fresh = await begun(shards)
        assert fresh.record("photos") == known
        shards[1].is_away = True
        blind = AliasBook(shards)
        with pytest.raises(ShardsMissing):
            await blind.begin(in_time())
        shards[0].is_away = False
        await blind.begin(in_time())
        assert (await blind.put(known, in_time())).revision == known.revision + 1
        for each in (book, fresh, blind):
            await each.close()
