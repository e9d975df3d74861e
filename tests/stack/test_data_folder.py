"""tandem.stack.data_folder and certificates on a full disk and on a read-only one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.local.item_store.item_store import ItemStore
from tandem.stack.certificates import LocalAuthority
from tandem.stack.data_folder import DataFolder
from tandem.stack.start_refused import StartRefused
from tandem.stages.item_write import Committed, Delete, Upsert
from tests.support.faults.small_disk import SmallDisk
from tests.support.item_store.made_items import FINGERPRINT, text_item

pytestmark = pytest.mark.skipif(SmallDisk.why_not() is not None, reason=str(SmallDisk.why_not()))


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", 8 << 20) as disk:
        yield disk


def opened(shard: Path) -> ItemStore:
    """Returns the store of a folder's only shard."""
    return ItemStore.open(shard, 0, 1, map_bytes=4 << 20)


def test_a_folder_on_a_full_disk_is_served_so_that_items_can_be_deleted(disk: SmallDisk) -> None:
    data, shard = disk.path / "data", disk.path / "data" / "shard-0"
    with DataFolder(data) as folder:
        assert folder.note == ""
        LocalAuthority(data / "tls").issue_all()
        shard.mkdir()
        store = opened(shard)
        for name in "abcdefghijklmnop":  # each leaves pages for the next, as in any used store
            store.apply([Upsert("scenes", FINGERPRINT, [text_item(name)])])
        store.close()
    pairs = {path: path.read_bytes() for path in (data / "tls").rglob("*.crt")}
    disk.fill()

    with DataFolder(data) as folder:
        assert "is full: items can be searched and deleted" in folder.note
        LocalAuthority(data / "tls").issue_all()
        store = opened(shard)
        [deleted] = store.apply([Delete("scenes", ["a", "b"])])
        store.close()
    assert {path: path.read_bytes() for path in (data / "tls").rglob("*.crt")} == pairs
    assert isinstance(deleted, Committed)
    for new in (disk.path / "new", disk.path):
        with pytest.raises(StartRefused, match=r"is full: make room, or give another folder"):
            DataFolder(new).take()
    with pytest.raises(OSError, match=r"No space left on device.*tls"):
        LocalAuthority(disk.path / "tls").issue_all()


def test_a_read_only_disk_is_named(disk: SmallDisk) -> None:
    with DataFolder(disk.path / "data"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)

    with pytest.raises(StartRefused, match=r"data is on a read-only disk: give another folder"):
        DataFolder(disk.path / "data").take()
