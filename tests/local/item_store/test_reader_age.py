"""Tests the age of a reader, by the commits that it has not seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.reader_age import CommitTimes, reader_ids
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item


class Clock:
    """Returns a time that only changes when it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def committed(clock: Clock, *commits: tuple[int, float]) -> CommitTimes:
    """Returns CommitTimes with these transactions at these times."""
    times = CommitTimes(clock)
    for transaction_id, clock.now in commits:
        times.note(transaction_id)
    return times


def test_a_reader_is_as_old_as_the_first_commit_that_it_does_not_see(clock: Clock) -> None:
    times = committed(clock, (5, 100.0), (6, 110.0), (7, 120.0))
    clock.now = 130.0
    assert times.oldest_reader_age_seconds([5]) == 20.0
    assert times.oldest_reader_age_seconds([6, 5, 7]) == 20.0
    assert times.oldest_reader_age_seconds([6]) == 10.0


def test_a_reader_of_the_newest_state_holds_no_pages(clock: Clock) -> None:
    times = committed(clock, (5, 100.0))
    clock.now = 10_000.0
    assert times.oldest_reader_age_seconds([5]) == 0.0
    assert times.oldest_reader_age_seconds([]) == 0.0


def test_commits_in_quick_succession_cost_little_and_tell_little_less(clock: Clock) -> None:
    commits = [(number, 100.0 + 0.01 * number) for number in range(1, 1_001)]
    times = committed(clock, *commits)
    for number, commit_time in commits[:-1:37]:
        true_age = clock.now - (commit_time + 0.01)
        told = times.oldest_reader_age_seconds([number])
        assert true_age - 0.11 <= told <= true_age + 1e-9
    assert times.newest_age_seconds() == 0.0


def test_lmdbs_table_is_read() -> None:
    table = "    pid     thread     txnid\n  75 7fd7eb0b7b80 12\n  76 7fd7eb0b7b81 -\n"
    assert reader_ids(table) == [12]
    assert reader_ids("(no active readers)\n") == []


def test_an_open_reader_ages_with_writes(tmp_path: Path) -> None:
    """It ages only after a write that it does not see, and until it ends."""
    store = ItemStore.open(tmp_path / "shard", 0, 1)
    try:
        store.apply([Upsert("pets", FINGERPRINT, [text_item("one")])])
        assert store.env.oldest_reader_age_seconds() == 0.0
        # In a process this environment may be opened once, so the reader is one of its own.
        with store._files.env.read():
            assert store.env.oldest_reader_age_seconds() == 0.0
            store.apply([Upsert("pets", FINGERPRINT, [text_item("two")])])
            assert 0.0 < store.env.oldest_reader_age_seconds() < 5.0
        assert store.env.oldest_reader_age_seconds() == 0.0
        age_seconds = store.env.commit_age_seconds()
        assert age_seconds is not None
        assert 0.0 < age_seconds < 5.0
    finally:
        store.close()
