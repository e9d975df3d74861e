"""Tests that files which would lose or mix up writes are refused, each with its cause."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.errors import StoreFull
from tandem.local.item_store import file_system
from tandem.local.item_store.file_system import file_system_type
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreRefused
from tandem.stages.item_write import Committed, Delete, Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item

MAP_BYTES = 16 << 20
ROOT = Path(__file__).parents[3]

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / {base}/data rw,relatime shared:9 - {kind} server:/export rw
31 22 0:26 / {base}/data/a\\040b rw - tmpfs tmpfs rw
32 22 0:27 / {base}/over rw - nfs4 server:/other rw
33 22 0:28 / {base}/over rw master:3 - xfs /dev/vdb rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replaces the kernel's list of mounts."""
    file = tmp_path / "mountinfo"
    monkeypatch.setattr(file_system, "MOUNTS", file)
    return file


@pytest.mark.parametrize(("kind", "readonly"), [("nfs4", False), ("fuse.sshfs", True)])
def test_a_network_file_system_is_refused(
    tmp_path: Path, mounts: Path, kind: str, readonly: bool
) -> None:
    mounts.write_text(MOUNTS.format(base=tmp_path, kind=kind))
    path = tmp_path / "data" / "new" / "shard"

    with pytest.raises(StoreRefused, match=rf"network file system \({kind}\)"):
        ItemStore.open(path, 0, 1, readonly, map_bytes=MAP_BYTES)

    assert not path.exists()
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES, allow_any_file_system=True).close()


def test_the_nearest_mount_counts(tmp_path: Path, mounts: Path) -> None:
    mounts.write_text(MOUNTS.format(base=tmp_path, kind="nfs"))
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")

    assert file_system_type(tmp_path) == "ext4"
    assert file_system_type(tmp_path / "data" / "x") == "nfs"
    assert file_system_type(tmp_path / "link" / "x") == "nfs"
    assert file_system_type(tmp_path / "database") == "ext4"
    assert file_system_type(tmp_path / "data" / "a b" / "x") == "tmpfs"
    assert file_system_type(tmp_path / "over") == "xfs"


def test_the_kernels_list_of_mounts_is_read() -> None:
    assert file_system_type(Path("/proc/self")) == "proc"


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first = ItemStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES)

    with pytest.raises(StoreRefused, match=f"has a writer already, process {os.getpid()}: stop"):
        ItemStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES)
    assert f"process {os.getpid()}" in run_store(tmp_path, "open_store(False)")
    assert run_store(tmp_path, "open_store(True); print('read')") == "read\n"
    first.close()

    assert run_store(tmp_path, "open_store(False); print('written')") == "written\n"


def test_a_killed_writer_does_not_lock_the_store(tmp_path: Path) -> None:
    run_store(tmp_path, "open_store(False); os.kill(os.getpid(), 9)")

    ItemStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES).close()


def may_mount() -> bool:
    """Returns whether this user can create namespaces and mount in them."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "--pid", "--mount", "--fork", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


needs_root = pytest.mark.skipif(not may_mount(), reason="needs root, namespaces and mounts")


@needs_root
def test_two_containers_of_equal_process_ids_are_refused(tmp_path: Path) -> None:
    """LMDB distinguishes readers by process id, so two with id 1 would share a slot."""
    hold = "store = open_store(False); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", *command(tmp_path, hold)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"

        other = run_store(tmp_path, "open_store(True)", "unshare", "--pid", "--fork")
        beside = run_store(tmp_path, "open_store(True); print('read')")

        holder.communicate("")
    assert "process id 1 too" in other
    assert "shareProcessNamespace: true" in other
    assert beside == "read\n"  # the control: a reader of another process id is let in


@needs_root
def test_a_read_only_mount_is_refused(tmp_path: Path) -> None:
    """Readers are refused too: LMDB would silently do without its reader table."""
    store = ItemStore.open(tmp_path, 0, 1, map_bytes=MAP_BYTES)
    store.close()
    script = (
        "subprocess.run(['mount', '--bind', path, path], check=True);"
        "subprocess.run(['mount', '-o', 'remount,ro,bind', path], check=True);"
    )

    for readonly in (True, False):
        told = run_store(tmp_path, f"{script} open_store({readonly})", "unshare", "--mount")
        assert "mount the volume read-write" in told


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mounts a disk of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@needs_root
def test_a_full_disk_refuses_writes_until_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    store = ItemStore.open(small_disk / "shard", 0, 1, map_bytes=64 << 20)
    stored_ids: list[str] = []
    for room_bytes in (1 << 20, 0):
        outcome: object = None
        while not isinstance(outcome, StoreFull):
            item_ids = [f"{len(stored_ids) + n:05}" for n in range(20)]
            items = [text_item(item_id, 1, 256) for item_id in item_ids]
            (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
            if isinstance(outcome, Committed):
                stored_ids += item_ids
        assert None not in store.read_items("scenes", stored_ids)
        assert store.sequence() == len(stored_ids)
        os.truncate(ballast, room_bytes)

    (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
    assert isinstance(outcome, Committed)
    store.close()


@needs_root
def test_on_a_full_disk_deleting_makes_room(small_disk: Path) -> None:
    store = ItemStore.open(small_disk / "shard", 0, 1, map_bytes=64 << 20)
    items = [text_item(f"{n:05}", 1, 256) for n in range(3000)]
    stored = 0
    while isinstance(
        store.apply([Upsert("scenes", FINGERPRINT, items[stored : stored + 20])])[0], Committed
    ):
        stored += 20

    outcomes = [store.apply([Delete("scenes", [item.item_id])])[0] for item in items[:20]]

    assert [type(outcome) for outcome in outcomes] == [Committed] * 20
    assert store.read_items("scenes", ["00000", items[stored - 1].item_id])[0] is None
    (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items[:5])])
    assert isinstance(outcome, Committed)
    store.close()


def command(path: Path, script: str) -> list[str]:
    """Returns the command that runs Python code with the store's folder."""
    begin = (
        "import os, subprocess, sys; from pathlib import Path\n"
        "from tandem.local.item_store.item_store import ItemStore\n"
        "from tandem.local.item_store.refused import StoreRefused\n"
        "path = Path(sys.argv[1])\n"
        "def open_store(readonly):\n"
        f"    return ItemStore.open(path, 0, 1, readonly, map_bytes={MAP_BYTES})\n"
        "try:\n"
        f"    {script}\n"
        "except StoreRefused as error:\n"
        "    print(error)\n"
    )
    return [sys.executable, "-c", begin, str(path)]


def run_store(path: Path, script: str, *within: str) -> str:
    """Runs Python code with the store's folder in a child process; returns its output."""
    return subprocess.run(
        [*within, *command(path, script)],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


def environment() -> dict[str, str]:
    """Returns this process's environment, so that a child imports the same code."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
