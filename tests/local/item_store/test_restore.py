"""Tests that a restore recreates a store as it was after one transaction, or nothing."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tandem.errors import ServiceUnavailable, WriterRefused
from tandem.local.item_store.backup import back_up, restore, verify_backup
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.files import RESTORING_NAME, SCHEMA_VERSION
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.verdict import verify_in_child
from tandem.platform.files.object_store import object_folder, path_of
from tandem.stages.item_write import Committed, Delete, Fence, Upsert
from tandem.stages.notes import PutNote, SetWriter
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item
from tests.support.item_store.stored_values import overwrite

MAP_BYTES = 64 << 20


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


@pytest.fixture
def backup(path: Path, tmp_path: Path) -> str:
    """Makes a backup of the store and returns its URL."""
    return back_up(object_folder(f"file://{tmp_path}/backups", is_new=True), path)[0]


def test_a_restore_begins_a_new_history_that_takes_writes(path: Path, tmp_path: Path) -> None:
    """Answers to request ids and notes are kept, and the seal of a store that was moved is not."""
    store = ItemStore.open(path, 1, 2, map_bytes=MAP_BYTES)
    store.apply([PutNote("alias/scenes", "{}", 0), SetWriter("other", 2, is_open=False)])
    notes = store.notes("")
    assert store.apply([Fence(sealed_sequence=31)]) == [Committed(31, is_sealed=True)]
    store.close()
    backup, manifest = back_up(object_folder(f"file://{tmp_path}/sealed", is_new=True), path)

    restore(backup, tmp_path / "restored")

    copy = ItemStore.open(tmp_path / "restored", 1, 2, map_bytes=MAP_BYTES)
    assert copy.store_id != manifest.store_id
    assert copy.notes("") == notes
    [refused] = copy.apply([Delete("other", ["t1"])])
    assert isinstance(refused, WriterRefused)
    repeat = Upsert("scenes", FINGERPRINT, [text_item(f"t{n}", n) for n in range(20)], "request")
    assert copy.apply([repeat]) == [Committed(20, is_repeat=True)]
    assert copy.apply([Delete("scenes", ["t4"])]) == [Committed(32, deleted_count=1)]
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
        "from tandem.platform.files.object_store import object_folder;"
        "place = object_folder(Path(sys.argv[2]).as_uri(), is_new=True);"
        "print(back_up(place, Path(sys.argv[1]))[0])"
    )
    writer = threading.Thread(target=write)
    writer.start()
    try:
        # Each in a process of its own: LMDB allows one environment of a path in a process.
        backups = [run(script, path, tmp_path / f"backups-{number}").strip() for number in range(3)]
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


def test_a_damaged_part_is_refused(backup: str, tmp_path: Path) -> None:
    """One flipped bit anywhere is found, and a pipe is not waited for; nothing is restored."""
    manifest = path_of(backup)
    part = next(manifest.with_suffix("").iterdir())
    data = bytearray(part.read_bytes())
    data[random.Random(3).randrange(len(data))] ^= 4
    part.write_bytes(data)

    with pytest.raises(StoreRefused, match="were stored"):
        restore(backup, tmp_path / "new")
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(FileNotFoundError, match=r"000001\.json is not a file"):
        verify_backup(backup)
    assert not (tmp_path / "new" / DATA_NAME).exists()


def test_a_backup_of_a_damaged_value_is_not_restored(path: Path, tmp_path: Path) -> None:
    """Its parts are those that were stored, and a backup reads no value."""
    overwrite(path, "items", item_key("scenes", "t3"), b"xy")
    backup, _ = back_up(object_folder(f"file://{tmp_path}/backups", is_new=True), path)

    assert not verify_backup(backup).is_sound
    with pytest.raises(StoreRefused, match=r"t3.*use another backup"):
        restore(backup, tmp_path / "new")
    assert not (tmp_path / "new" / DATA_NAME).exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"manifest_version": 2}, "version 2, this program reads 1"),
        ({"schema_version": SCHEMA_VERSION + 1}, "schema version 4, this program reads 3"),
        ({"surprise": 1}, "surprise"),
        ({"item_counts": {"scenes": "5"}}, "item_counts"),
        ({"data": []}, "data"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    backup: str, tmp_path: Path, change: dict[str, object], match: str
) -> None:
    file = path_of(backup)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    with pytest.raises(StoreRefused, match=match):
        restore(backup, tmp_path / "new")
    assert not (tmp_path / "new" / DATA_NAME).exists()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"manifest_version": 1}', b"\xff\xfe"])
def test_an_invalid_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)

    with pytest.raises(StoreRefused, match=r"manifest\.json"):
        verify_backup((tmp_path / "manifest.json").as_uri())


def test_a_folder_in_use_is_not_restored_into(path: Path, backup: str, tmp_path: Path) -> None:
    before = (path / DATA_NAME).read_bytes()

    with pytest.raises(StoreRefused, match="not empty"):
        restore(backup, path)

    assert (path / DATA_NAME).read_bytes() == before
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)  # the root of a new volume
    restore(backup, tmp_path / "volume")


def test_a_restore_that_was_cut_short_is_not_opened(backup: str, tmp_path: Path) -> None:
    """Opening it would start an empty store; another restore repairs it."""
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
def test_a_killed_restore_leaves_a_whole_store_or_none(backup: str, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tandem.local.item_store.backup import restore;"
        "print('go', flush=True);"
        "restore(sys.argv[1], Path(sys.argv[2]))"
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
        back_up(object_folder(f"file://{tmp_path}/backups", is_new=True), path)

    assert list((tmp_path / "backups").iterdir()) == []


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
