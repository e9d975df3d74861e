"""Tests that a backup is the store after one transaction, and that a restore recreates it."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tandem.errors import ServiceUnavailable
from tandem.local.item_store.backup import back_up, is_backup, restore, verify_backup
from tandem.local.item_store.backup_manifest import BackupManifest
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.files import RESTORING_NAME, SCHEMA_VERSION
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.verdict import verify_in_child
from tandem.local.item_store.writer_lock import WriterLock
from tandem.stages.item_write import Committed, Delete, Upsert
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item

MAP_BYTES = 64 << 20
TIME = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Makes a closed store with 20 texts, 10 images and one deletion."""
    path = tmp_path / "shard"
    store = ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)
    store.apply(
        [
            Upsert("scenes", FINGERPRINT, [text_item(f"t{n}", n) for n in range(20)], "request"),
            Upsert("other", FINGERPRINT, [image_item(f"i{n}", n) for n in range(10)]),
            Delete("scenes", ["t3"]),
        ]
    )
    store.close()
    return path


def test_a_restored_store_is_the_one_that_was_backed_up(path: Path, tmp_path: Path) -> None:
    """Items, indexes, sequence, changes and answers are the same; the store_id is another."""
    backup, manifest = back_up(path, tmp_path / "backups", clock=lambda: TIME)
    store = ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("later")])])

    restore(backup, tmp_path / "restored")

    copy = ItemStore.open(tmp_path / "restored", 1, 2, map_bytes=MAP_BYTES)
    assert backup.name == "shard-1-of-2-20260203T040506Z"
    assert manifest == BackupManifest.read(backup)
    assert (manifest.sequence, dict(manifest.item_counts)) == (31, {"other": 10, "scenes": 19})
    assert manifest.created_time == "2026-02-03T04:05:06+00:00"
    assert manifest.data_bytes == (backup / DATA_NAME).stat().st_size
    assert sorted(p.name for p in backup.iterdir()) == ["data.mdb", "manifest.json"]
    assert copy.sequence() == 31
    assert copy.index_ids() == store.index_ids()
    ids = [f"t{n}" for n in range(20)]
    assert list(map(repr, copy.read_items("scenes", [*ids, "later"]))) == [
        *map(repr, store.read_items("scenes", ids)),
        "None",
    ]
    assert copy.store_id not in (store.store_id, manifest.store_id)
    assert manifest.store_id == store.store_id
    repeat = Upsert("scenes", FINGERPRINT, [text_item(f"t{n}", n) for n in range(20)], "request")
    assert copy.apply([repeat]) == [Committed(20, is_repeat=True)]
    assert copy.apply([Delete("scenes", ["t4"])]) == [Committed(32, deleted_count=1)]
    store.close()
    copy.close()


def test_backups_during_writes_are_states_between_transactions(path: Path, tmp_path: Path) -> None:
    """Each upsert writes two items, and every backup has both or neither."""
    stop = threading.Event()

    def write() -> None:
        store = ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)
        number = 0
        while not stop.is_set():
            pair = [image_item("x", number), image_item("y", number)]
            store.apply([Upsert("pairs", FINGERPRINT, pair)])
            number += 1
        store.close()

    script = (
        "import sys; from pathlib import Path; from tandem.local.item_store.backup import back_up;"
        "print(back_up(Path(sys.argv[1]), Path(sys.argv[2]))[0])"
    )
    writer = threading.Thread(target=write)
    writer.start()
    try:
        # Each in a process of its own: LMDB allows one environment of a path in a process.
        backups = [
            Path(run(script, path, tmp_path / f"backups-{number}").strip()) for number in range(3)
        ]
    finally:
        stop.set()
        writer.join()

    sequences = []
    for number, backup in enumerate(backups):
        verdict = verify_backup(backup)
        assert verdict.is_sound
        sequences.append(verdict.sequence)
        restore(backup, tmp_path / f"restored-{number}")
        store = ItemStore.open(tmp_path / f"restored-{number}", 1, 2, map_bytes=MAP_BYTES)
        if "pairs" in store.index_ids():
            x, y = store.read_items("pairs", ["x", "y"])
            assert x is not None
            assert y is not None
            assert x.encoding.embedding.tolist() == y.encoding.embedding.tolist()
        assert store.sequence() == verdict.sequence
        assert (verdict.sequence - 31) % 2 == 0
        store.close()
    assert sequences == sorted(sequences)
    assert sequences[-1] > 31


def test_a_damaged_backup_is_refused(path: Path, tmp_path: Path) -> None:
    """One flipped bit anywhere is found, and nothing is restored."""
    backup, _ = back_up(path, tmp_path / "backups")
    assert verify_backup(backup).is_sound
    data = bytearray((backup / DATA_NAME).read_bytes())
    data[random.Random(3).randrange(len(data))] ^= 4
    (backup / DATA_NAME).write_bytes(data)

    for attempt in (lambda: verify_backup(backup), lambda: restore(backup, tmp_path / "new")):
        with pytest.raises(StoreRefused, match="SHA-256"):
            attempt()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"manifest_version": 2}, "version 2, this program reads 1"),
        ({"schema_version": SCHEMA_VERSION + 1}, "schema version 3, this program reads 2"),
        ({"surprise": 1}, "surprise"),
        ({"item_counts": {"scenes": "5"}}, "item_counts"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    path: Path, tmp_path: Path, change: dict[str, object], match: str
) -> None:
    backup, _ = back_up(path, tmp_path / "backups")
    file = backup / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    with pytest.raises(StoreRefused, match=match):
        restore(backup, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"manifest_version": 1}', b"\xff\xfe"])
def test_an_invalid_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)

    for attempt in (lambda: verify_backup(tmp_path), lambda: restore(tmp_path, tmp_path / "new")):
        with pytest.raises(StoreRefused, match=r"manifest\.json"):
            attempt()
    assert not (tmp_path / "new").exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["manifest.json", DATA_NAME])
def test_a_backup_contains_only_plain_files(path: Path, tmp_path: Path, name: str) -> None:
    """Reading a named pipe would never end."""
    backup, _ = back_up(path, tmp_path / "backups")
    (backup / name).unlink()
    os.mkfifo(backup / name)

    for attempt in (lambda: verify_backup(backup), lambda: restore(backup, tmp_path / "new")):
        with pytest.raises(StoreRefused, match="not a complete backup"):
            attempt()
    assert not (tmp_path / "new").exists()


def test_an_incomplete_backup_is_refused(path: Path, tmp_path: Path) -> None:
    """The remains of a killed backup are refused, and the next backup removes them."""
    half = tmp_path / "backups" / "shard-1-of-2-20200101T000000Z.part"
    half.mkdir(parents=True)
    (half / DATA_NAME).write_bytes((path / DATA_NAME).read_bytes())
    under_way = tmp_path / "backups" / "shard-0-of-2-20200101T000000Z.part"
    under_way.mkdir()
    lock = WriterLock(under_way)

    with pytest.raises(StoreRefused, match="not a complete backup"):
        restore(half, tmp_path / "new")
    back_up(path, tmp_path / "backups")

    assert not half.exists()
    assert under_way.exists()
    lock.release()


def test_a_folder_in_use_is_not_restored_into(path: Path, tmp_path: Path) -> None:
    backup, _ = back_up(path, tmp_path / "backups")
    before = (path / DATA_NAME).read_bytes()

    with pytest.raises(StoreRefused, match="not empty"):
        restore(backup, path)

    assert (path / DATA_NAME).read_bytes() == before
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)  # the root of a new volume
    restore(backup, tmp_path / "volume")


def test_a_restore_that_was_cut_short_is_not_opened(path: Path, tmp_path: Path) -> None:
    """Opening it would start an empty store; another restore repairs it."""
    backup, _ = back_up(path, tmp_path / "backups")
    target = tmp_path / "new"
    (target / RESTORING_NAME).mkdir(parents=True)
    (target / RESTORING_NAME / DATA_NAME).write_bytes(b"half of it")

    with pytest.raises(StoreRefused, match="unfinished restore"):
        ItemStore.open(target, 1, 2, map_bytes=MAP_BYTES)
    with pytest.raises(ServiceUnavailable):
        ItemStore.open(target, 1, 2, readonly=True, map_bytes=MAP_BYTES)
    restore(backup, target)

    store = ItemStore.open(target, 1, 2, map_bytes=MAP_BYTES)
    assert store.sequence() == 31
    store.close()


@pytest.mark.timeout(240)
def test_a_killed_restore_leaves_a_whole_store_or_none(path: Path, tmp_path: Path) -> None:
    backup, _ = back_up(path, tmp_path / "backups")
    script = (
        "import sys; from pathlib import Path; from tandem.local.item_store.backup import restore;"
        "print('go', flush=True);"
        "restore(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    seen = set()
    for number in range(5):
        target = tmp_path / f"killed-{number}"
        child = subprocess.Popen(
            [sys.executable, "-c", script, backup, target],
            env=child_environment(),
            stdout=subprocess.PIPE,
        )
        # From the moment that there is something to spoil; the last one runs to its end.
        end_time = time.monotonic() + 60
        while not target.exists() and time.monotonic() < end_time:
            time.sleep(0.0005)
        if number < 4:
            time.sleep(number * 0.002)
            child.kill()
        child.communicate()
        try:
            store = ItemStore.open(target, 1, 2, map_bytes=MAP_BYTES)
        except StoreRefused:
            seen.add("refused")
            continue
        if store.sequence() == 31:
            assert verify_in_child(target).is_sound
            seen.add("whole")
        else:  # killed before it noted that it had begun: nothing was put there
            assert (store.sequence(), store.index_ids()) == (0, [])
            seen.add("empty")
        store.close()

    assert "whole" in seen


def test_a_damaged_store_is_not_backed_up(path: Path, tmp_path: Path) -> None:
    (path / DATA_NAME).write_bytes(bytes(8192) + (path / DATA_NAME).read_bytes()[8192:])

    with pytest.raises(StoreRefused, match="damaged"):
        back_up(path, tmp_path / "backups")

    assert not (tmp_path / "backups").exists()


def test_a_second_backup_in_one_second_is_refused(path: Path, tmp_path: Path) -> None:
    backup, _ = back_up(path, tmp_path / "backups", clock=lambda: TIME)

    with pytest.raises(StoreRefused, match="exists already"):
        back_up(path, tmp_path / "backups", clock=lambda: TIME)

    assert verify_backup(backup).is_sound
    assert is_backup(backup)
    assert not is_backup(path)


def run(script: str, *arguments: Path) -> str:
    """Runs Python code in a child process and returns its output; fails if the child fails."""
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def child_environment() -> dict[str, str]:
    """Returns this process's environment, so that a child imports the same code."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
