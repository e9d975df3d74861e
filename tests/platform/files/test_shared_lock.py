"""Tests that many share the lock, or one holds it alone."""

import threading

import pytest

from tandem.platform.files.shared_lock import LockBusy, SharedLock


def test_sharers_hold_it_together() -> None:
    """Two threads are inside at once, or the barrier would time out."""
    lock, barrier = SharedLock(), threading.Barrier(2)

    def share() -> None:
        with lock.shared():
            barrier.wait(60)

    threads = [threading.Thread(target=share) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not barrier.broken


def test_no_one_shares_with_an_exclusive_holder() -> None:
    """Changes made in two halves are never seen half done, and are not starved."""
    lock, stop = SharedLock(), threading.Event()
    halves = [0, 0]
    torn: list[tuple[int, int]] = []

    def read() -> None:
        while not stop.is_set():
            with lock.shared():
                first = halves[0]
                if first != halves[1]:
                    torn.append((first, halves[1]))

    def write() -> None:
        for _ in range(300):
            with lock.exclusive():
                halves[0] += 1
                halves[1] += 1

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join(60)
    stop.set()
    for thread in readers:
        thread.join(60)

    assert halves == [600, 600]
    assert torn == []


def test_at_once_it_is_shared_or_refused() -> None:
    lock = SharedLock()

    with lock.shared(), lock.shared(at_once=True):
        pass
    with lock.exclusive(), pytest.raises(LockBusy), lock.shared(at_once=True):
        pass
    with lock.exclusive():
        pass  # both were released
