"""Tests the power-cut disk as a mounted file system."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faults.power_cut_disk import PowerCutDisk
from tests.support.faults.volatile_files import Loss

pytestmark = [
    pytest.mark.xdist_group("faults"),
    pytest.mark.skipif(bool(PowerCutDisk.why_not()), reason=PowerCutDisk.why_not() or ""),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerCutDisk]:
    """Mounts an empty disk."""
    with PowerCutDisk(tmp_path / "disk") as disk:
        yield disk


def write_synced(path: Path, content: bytes) -> None:
    """Writes a file and syncs its content and its name."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Syncs the names in the folder."""
    folder = os.open(path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def names(path: Path) -> list[str]:
    """Returns the names in the folder, sorted."""
    return sorted(entry.name for entry in path.iterdir())


def test_only_synced_data_survives_a_power_cut(disk: PowerCutDisk) -> None:
    """fsync keeps a file's content, or a folder's names; O_DSYNC keeps writes."""
    write_synced(disk.path / "kept", b"kept")
    (disk.path / "kept").write_bytes(b"newer and not synced")
    (disk.path / "unnamed").write_bytes(b"x")
    direct = os.open(disk.path / "direct", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    sync_folder(disk.path)
    os.write(direct, b"synced as it is written")
    os.close(direct)
    (disk.path / "lost").write_bytes(b"x")

    disk.cut_power(Loss.DROP, random.Random(1))

    assert names(disk.path) == ["direct", "kept", "unnamed"]
    assert (disk.path / "kept").read_bytes() == b"kept"
    assert (disk.path / "unnamed").read_bytes() == b""
    assert (disk.path / "direct").read_bytes() == b"synced as it is written"


def test_syncs_fail_and_lose_what_they_should_have_kept(disk: PowerCutDisk) -> None:
    """EIO comes once; the next sync succeeds although the data is lost."""
    path = disk.path / "file"
    write_synced(path, b"old")
    with path.open("r+b", buffering=0) as file:
        file.write(b"new")
        disk.set_faults(random.Random(1), error_rate=1.0)
        with pytest.raises(OSError, match="Input/output error"):
            os.fsync(file.fileno())
        disk.set_faults(random.Random(1))
        os.fsync(file.fileno())
    assert path.read_bytes() == b"new"

    disk.cut_power(Loss.DROP, random.Random(1))

    assert path.read_bytes() == b"old"


def test_slow_syncs_do_not_delay_others(disk: PowerCutDisk) -> None:
    """A sync takes the set time, and its times are recorded."""
    disk.set_faults(random.Random(1), delay_seconds=0.3)
    with (disk.path / "file").open("wb", buffering=0) as file:
        file.write(b"x")
        start_time = time.monotonic()
        os.fsync(file.fileno())
        assert time.monotonic() - start_time >= 0.3

    ((sync_start_time, sync_end_time, is_ok),) = disk.take_syncs()
    assert is_ok
    assert start_time <= sync_start_time <= sync_end_time - 0.3 <= time.monotonic()


def test_a_full_disk_says_so(disk: PowerCutDisk) -> None:
    """Writes raise ENOSPC, and statvfs reports the free space."""
    disk.set_faults(random.Random(1), room_bytes=1 << 20)
    (disk.path / "file").write_bytes(bytes(1 << 19))

    with pytest.raises(OSError, match="No space left"):
        (disk.path / "more").write_bytes(bytes(1 << 20))

    assert os.statvfs(disk.path).f_bavail * 4096 == 1 << 19
    (disk.path / "file").unlink()
    (disk.path / "more").write_bytes(bytes(1 << 20))
