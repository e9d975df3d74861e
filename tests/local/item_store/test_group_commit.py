"""Tests that concurrent writes are committed together."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

import pytest

from tandem.errors import InternalFault, Overloaded, ServiceUnavailable, StoreFull, TandemError
from tandem.local.item_store.group_commit import GroupCommit
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Committed, ItemWrite, Upsert
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.item_store.made_items import FINGERPRINT, text_item


@dataclass(frozen=True)
class Note:
    """Describes a write of one record."""

    number: int
    record_count: int = 1


class Notebook:
    """Keeps its batches; `gate` holds back the commit, `fault` breaks it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.started = threading.Event()
        self.fault: Exception | None = None

    def commit(self, notes: Sequence[Note]) -> list[int | TandemError]:
        self.started.set()
        self.gate.wait(10)
        if self.fault:
            raise self.fault
        self.batches.append([note.number for note in notes])
        return [StoreFull(why="odd") if note.number % 2 else note.number for note in notes]


def test_concurrent_small_writes_share_transactions(tmp_path: Path) -> None:
    """200 writes from 20 threads need far fewer than 200 transactions."""
    store = ItemStore.open(tmp_path, 0, 1, map_bytes=16 << 20)
    transaction_count = 0

    def commit(writes: Sequence[ItemWrite]) -> list[Committed | TandemError]:
        nonlocal transaction_count
        transaction_count += 1
        return store.apply(writes)

    writer: GroupCommit[ItemWrite, Committed] = GroupCommit(commit)

    def write_ten(thread_number: int) -> None:
        for number in range(10):
            item = text_item(f"{thread_number}-{number}")
            committed = writer.submit(Upsert("scenes", FINGERPRINT, [item])).result(timeout=60)
            assert store.read_items("scenes", [item.item_id]) != [None]
            assert committed.sequence > 0

    threads = [threading.Thread(target=write_ten, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()

    assert store.sequence() == 200
    assert len(list(store.scan_embeddings("scenes"))) == 200
    assert transaction_count <= 60
    store.close()


def test_writes_that_wait_are_committed_in_order_and_in_bounded_batches() -> None:
    notebook = Notebook()
    writer: GroupCommit[Note, int] = GroupCommit(notebook.commit, max_record_count=4)
    first = writer.submit(Note(0, record_count=4))
    assert notebook.started.wait(60)

    futures = [writer.submit(Note(number)) for number in range(2, 20, 2)]
    notebook.gate.set()

    assert [future.result(60) for future in futures] == list(range(2, 20, 2))
    assert first.result(0) == 0
    assert notebook.batches == [[0], [2, 4, 6, 8], [10, 12, 14, 16], [18]]
    writer.close()


async def test_each_write_gets_its_own_outcome() -> None:
    async def check(factor: float) -> None:
        notebook = Notebook()
        wait_seconds = 0.2 * factor
        writer: GroupCommit[Note, int] = GroupCommit(notebook.commit, max_wait_seconds=wait_seconds)
        writer.submit(Note(0))
        assert notebook.started.wait(60)

        even = writer.submit(Note(2))
        notebook.gate.set()
        odd = writer.submit(Note(3))

        assert even.result(60) == 2
        with pytest.raises(StoreFull):
            odd.result(60)
        writer.close()
        assert notebook.batches == [[0], [2, 3]]

    await holds_with_longer_times(check)


def test_a_lone_writer_does_not_wait_for_others() -> None:
    notebook = Notebook()
    notebook.gate.set()
    writer: GroupCommit[Note, int] = GroupCommit(notebook.commit, max_wait_seconds=3600)

    for number in range(0, 6, 2):
        assert writer.submit(Note(number)).result(60) == number

    assert notebook.batches == [[0], [2], [4]]
    writer.close()


def test_callers_that_share_a_commit_share_the_next_one_too() -> None:
    """Else the first to answer would be committed alone, and the others wait for it each time."""
    notebook = Notebook()
    writer: GroupCommit[Note, int] = GroupCommit(
        notebook.commit, max_wait_seconds=3600, max_record_count=2
    )
    alone = writer.submit(Note(0))
    assert notebook.started.wait(60)
    together = [writer.submit(Note(2)), writer.submit(Note(4))]
    notebook.gate.set()
    wait([alone, *together], 60)

    first = writer.submit(Note(6))
    with pytest.raises(TimeoutError):
        first.result(0.2)
    wait([first, writer.submit(Note(8))], 60)

    assert notebook.batches == [[0], [2, 4], [6, 8]]
    writer.close()


def test_a_write_cancelled_while_it_waits_is_not_committed() -> None:
    notebook = Notebook()
    writer: GroupCommit[Note, int] = GroupCommit(notebook.commit)
    under_way = writer.submit(Note(0))
    assert notebook.started.wait(60)
    waiting = writer.submit(Note(2))

    assert waiting.cancel()
    assert not under_way.cancel()
    notebook.gate.set()
    writer.close()

    assert notebook.batches == [[0]]


def test_too_many_waiting_writes_are_refused() -> None:
    notebook = Notebook()
    writer: GroupCommit[Note, int] = GroupCommit(
        notebook.commit, max_record_count=1, max_queued_count=2
    )
    futures = [writer.submit(Note(0))]
    assert notebook.started.wait(60)
    futures += [writer.submit(Note(2)), writer.submit(Note(4))]

    with pytest.raises(Overloaded):
        writer.submit(Note(6))

    notebook.gate.set()
    assert [future.result(60) for future in futures] == [0, 2, 4]
    writer.close()


def test_a_fault_stops_the_writer_and_nothing_hangs() -> None:
    """After a commit breaks, its callers and all waiting and later ones get InternalFault."""
    notebook = Notebook()
    notebook.fault = OSError("the disk is gone")
    writer: GroupCommit[Note, int] = GroupCommit(notebook.commit)
    futures: list[Future[int]] = [writer.submit(Note(0))]
    assert notebook.started.wait(60)
    futures.append(writer.submit(Note(2)))

    notebook.gate.set()

    assert not wait(futures, 10).not_done
    for future in futures:
        assert isinstance(future.exception(), InternalFault)
    with pytest.raises(InternalFault, match="restart"):
        writer.submit(Note(4))
    with pytest.raises(InternalFault, match="restart"):
        writer.check()
    writer.close()


def test_a_recoverable_fault_is_recovered_from_before_the_next_commit() -> None:
    notebook = Notebook()
    notebook.gate.set()
    notebook.fault = OSError("fsync")
    attempts: list[Exception | None] = [OSError("still"), StoreFull(why="odd"), None]
    recovering = threading.Event()

    def recover() -> None:
        recovering.wait(60)
        if (fault := attempts.pop(0)) is not None:
            raise fault
        notebook.fault = None

    writer: GroupCommit[Note, int] = GroupCommit(
        notebook.commit, recover=recover, recoverable=(OSError,), recovery_seconds=0.01
    )
    future = writer.submit(Note(0))
    with pytest.raises(ServiceUnavailable, match="may or may not be stored"):
        future.result(60)
    with pytest.raises(ServiceUnavailable, match="fsync"):
        writer.submit(Note(2))
    with pytest.raises(ServiceUnavailable, match="fsync"):
        writer.check()

    recovering.set()
    until(lambda: not attempts and is_well(writer))

    assert writer.submit(Note(4)).result(60) == 4
    assert notebook.batches == [[4]]
    writer.close()


def test_a_write_that_waits_during_a_fault_is_refused_or_committed_never_lost() -> None:
    notebook = Notebook()
    notebook.fault = OSError("fsync")

    def recover() -> None:
        raise OSError("still")

    writer: GroupCommit[Note, int] = GroupCommit(
        notebook.commit, max_record_count=1, recover=recover, recoverable=(OSError,)
    )
    first = writer.submit(Note(0))
    assert notebook.started.wait(60)
    second = writer.submit(Note(2))
    notebook.gate.set()

    with pytest.raises(ServiceUnavailable, match="may or may not be stored"):
        first.result(60)
    with pytest.raises(ServiceUnavailable, match="was not stored"):
        second.result(60)
    writer.close()


def test_a_fault_of_the_idle_task_is_recovered_from() -> None:
    notebook = Notebook()
    notebook.gate.set()
    faults, recoveries = [OSError("odd")], []

    def idle() -> None:
        if faults:
            raise faults.pop()

    writer: GroupCommit[Note, int] = GroupCommit(
        notebook.commit,
        idle=idle,
        idle_seconds=0.01,
        recover=lambda: recoveries.append("recovered"),
        recoverable=(OSError,),
        recovery_seconds=0.01,
    )
    until(lambda: len(recoveries) == 1 and is_well(writer))

    assert writer.submit(Note(2)).result(60) == 2
    writer.close()


def is_well(writer: GroupCommit[Note, int]) -> bool:
    """Returns whether the writer accepts writes."""
    try:
        writer.check()
    except ServiceUnavailable:
        return False
    return True


def until(condition: Callable[[], bool]) -> None:
    """Waits up to ten seconds for a condition."""
    end_time = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_time
        time.sleep(0.005)


def test_close_commits_submitted_writes() -> None:
    notebook = Notebook()
    notebook.gate.set()
    writer: GroupCommit[Note, int] = GroupCommit(notebook.commit)
    futures = [writer.submit(Note(number)) for number in range(0, 40, 2)]

    writer.close()

    assert [future.result(0) for future in futures] == list(range(0, 40, 2))
    with pytest.raises(InternalFault, match="closed"):
        writer.submit(Note(0))
