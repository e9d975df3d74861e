"""Tests that stored texts and pictures are private to their owner, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.local.item_store.backup import back_up, restore
from tandem.local.item_store.item_store import ItemStore
from tandem.platform.files.object_store import object_folder
from tandem.platform.files.private_files import private_files
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item
from tests.support.item_store.made_stores import MAP_BYTES


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Sets a usual umask of shells during the test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def open_to_others(path: Path) -> dict[str, str]:
    """Returns the files and folders that others can access, or with too many permissions."""
    found = {}
    for each in (path, *path.rglob("*")):
        mode = each.stat().st_mode & 0o777
        if mode != (0o700 if each.is_dir() else 0o600):
            found[each.name] = oct(mode)
    return found


def test_a_store_its_backup_and_its_restore_are_private(tmp_path: Path, umask: int) -> None:
    store = ItemStore.open(tmp_path / "shard", 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("one")])])
    store.close()
    place = object_folder(f"file://{tmp_path}/backups", is_new=True)
    backup, _ = back_up(place, tmp_path / "shard")
    restore(backup, tmp_path / "restored")
    restored = ItemStore.open(tmp_path / "restored", 0, 1, map_bytes=MAP_BYTES)
    try:
        assert {path.name for path in (tmp_path / "shard").iterdir()} >= {"data.mdb", "lock.mdb"}
        for name in ("shard", "backups", "restored"):
            assert open_to_others(tmp_path / name) == {}, name
    finally:
        restored.close()


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    """Its permissions were decided when it was made, for example on a volume."""
    folder = tmp_path / "shard"
    folder.mkdir()
    folder.chmod(0o750)
    ItemStore.open(folder, 0, 1, map_bytes=MAP_BYTES).close()

    assert folder.stat().st_mode & 0o777 == 0o750


def test_the_umask_is_as_before(umask: int) -> None:
    with pytest.raises(ValueError, match="a fault"), private_files():
        raise ValueError("a fault")

    assert os.umask(umask) == umask
