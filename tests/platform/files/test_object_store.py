"""A folder of objects in a file system: each is whole, on disk, and replaced only if that is meant.

tests/local/item_store/test_backup.py has the stores of S3.
"""

import os
from pathlib import Path

import pytest

from tandem.platform.files.object_store import object_folder


def test_an_object_is_not_replaced_unless_it_may_be(tmp_path: Path) -> None:
    folder = object_folder(tmp_path.as_uri())
    folder.create("a/b", b"first")

    with pytest.raises(FileExistsError):
        folder.create("a/b", b"second")

    assert folder.read("a/b") == b"first"
    folder.create("a/b", b"third", is_replaced=True)
    assert folder.read("a/b") == b"third"
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["b"]


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
