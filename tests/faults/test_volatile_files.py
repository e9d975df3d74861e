"""Tests what is left on a disk after a power cut, by what was synced."""

import random

import pytest

from tests.support.faults.volatile_files import (
    SECTOR_BYTES,
    File,
    Loss,
    VolatileFiles,
    Write,
)


def written_file() -> File:
    """Makes a file of four synced sectors of A under one unsynced write of B."""
    file = File(2, 0o644)
    file.change(Write(0, b"A" * 4 * SECTOR_BYTES))
    file.sync()
    file.change(Write(0, b"B" * 4 * SECTOR_BYTES))
    return file


@pytest.mark.parametrize("loss", list(Loss))
def test_synced_writes_are_kept(loss: Loss) -> None:
    file = written_file()
    file.sync()

    file.lose(loss, random.Random(1))

    assert file.seen == b"B" * 4 * SECTOR_BYTES


def test_a_subset_keeps_writes_whole() -> None:
    """Each write is kept or lost; over many cuts both happen."""
    kept = set()
    for seed in range(20):
        file = written_file()
        file.lose(Loss.SUBSET, random.Random(seed))
        kept.add(bytes(file.seen))

    assert kept == {b"A" * 4 * SECTOR_BYTES, b"B" * 4 * SECTOR_BYTES}


def test_a_torn_write_is_kept_by_sectors() -> None:
    """Each sector is whole, but its neighbours may be older."""
    file = written_file()

    file.lose(Loss.TORN, random.Random(3))

    sectors = {
        bytes(file.seen[start : start + SECTOR_BYTES])
        for start in range(0, 4 * SECTOR_BYTES, SECTOR_BYTES)
    }
    assert sectors == {b"A" * SECTOR_BYTES, b"B" * SECTOR_BYTES}


def test_a_failed_sync_loses_writes_for_good() -> None:
    """As on Linux, readers see them and a later sync succeeds, but a power cut loses them."""
    file = written_file()

    file.fail_sync()
    file.sync()

    assert file.seen == b"B" * 4 * SECTOR_BYTES
    file.lose(Loss.DROP, random.Random(1))
    assert file.seen == b"A" * 4 * SECTOR_BYTES


def test_a_name_is_kept_once_its_folder_is_synced() -> None:
    """Before that, a new file or a rename is lost."""
    files = VolatileFiles()
    lost = files.make_file(files.root, "lost", 0o644)
    lost.sync()
    files.lose(Loss.DROP, random.Random(1))
    assert files.root.seen == {}

    old = files.make_file(files.root, "name", 0o644)
    files.sync_folder(files.root)
    new = files.make_file(files.root, "temporary", 0o644)
    files.rename([(files.root, "name", new), (files.root, "temporary", None)])
    assert files.root.seen == {"name": new}
    files.lose(Loss.DROP, random.Random(1))
    assert files.root.seen == {"name": old}
