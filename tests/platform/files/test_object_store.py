"""A folder of objects in a file system: each is whole, on disk, and replaced only if that is meant.

tests/local/item_store/test_backup.py has the stores of S3.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tandem.platform.files.object_store import object_folder


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_an_object_is_replaced_only_by_who_read_it(tmp_path: Path, kind: str) -> None:
    """Of many that read the same, one replaces it; the others are told so."""
    folder = object_folder(tmp_path.as_uri() if kind == "file" else "memory:///a")
    folder.create("a/b", b"first")
    with pytest.raises(FileExistsError):
        folder.create("a/b", b"second")
    assert not folder.swap("a/b", None, b"second")
    assert not folder.swap("a/c", b"first", b"second")
    assert folder.read("a/b") == b"first"

    def added(number: int) -> None:
        stored = folder.read("a/b")
        while not folder.swap("a/b", stored, stored + b"%02d" % number):
            stored = folder.read("a/b")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(added, range(40)))
    after = folder.read("a/b").removeprefix(b"first").decode()
    assert sorted(after[i : i + 2] for i in range(0, 80, 2)) == [f"{n:02}" for n in range(40)]
    assert list(folder.sizes()) == ["a/b"]


def test_an_object_and_the_folders_that_lead_to_it_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before `create` returns, since a backup or a write is acknowledged then."""
    folder, synced = object_folder(tmp_path.as_uri()), set[int]()
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced.add(os.fstat(file).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    folder.create("a/b", b"whole")

    paths = (tmp_path / "a" / "b", tmp_path / "a", tmp_path)
    assert synced == {path.stat().st_ino for path in paths}
