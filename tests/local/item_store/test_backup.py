"""Backs up a store to an object store: a folder, and a server of S3 that fails as asked."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.local.item_store import change_set, files
from tandem.local.item_store.backup import back_up, backups_in, restore, verify_backup
from tandem.local.item_store.change_log import KEPT_CHANGE_COUNT
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.request_log import KEPT_REQUEST_COUNT
from tandem.platform.files.object_store import ObjectFolder, object_folder
from tandem.stages.item_write import Delete, Drop, ItemWrite, Upsert
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item
from tests.support.item_store.stored_values import every_value
from tests.support.object_store.faulty_s3 import (
    FaultyS3,
    Reply,
    as_sent,
    faulty_s3,
    no_fault,
    refuse_none,
)
from tests.support.object_store.moto_server import BUCKET, moto_server, s3_environment

# Of five pages of LMDB, so that a small store has several.
PART_BYTES = 20_000
RETRY_SECONDS = 0.5


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """Starts a server of S3 to which the environment leads."""
    with faulty_s3() as server:
        for name, value in s3_environment(server.endpoint).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """Starts moto's server of S3 and returns its URL."""
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["file", "s3", "moto"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectFolder:
    """Opens an empty place for backups, of each kind."""
    if request.param == "file":
        return object_folder(f"file://{tmp_path}/place", is_new=True)
    if request.param == "moto":
        for name, value in s3_environment(request.getfixturevalue("moto")).items():
            monkeypatch.setenv(name, value)
        return object_folder(f"s3://{BUCKET}/{tmp_path.name}")
    request.getfixturevalue("s3")
    return object_folder("s3://bucket/some/place")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Makes a closed store with 20 texts, 40 images and one deletion."""
    path = tmp_path / "shard"
    write(
        path,
        Upsert("scenes", FINGERPRINT, [text_item(f"t{n}", n) for n in range(20)], "request"),
        Upsert("other", FINGERPRINT, [image_item(f"i{n}", n) for n in range(40)]),
        Delete("scenes", ["t3"]),
    )
    return path


def test_a_restored_store_is_the_one_that_was_backed_up(
    path: Path, place: ObjectFolder, tmp_path: Path
) -> None:
    """The first backup is a copy in parts, and only the store_id differs after a restore."""
    url, manifest = back_up(place, path, part_bytes=PART_BYTES)

    restore(url, tmp_path / "new")

    assert url.startswith(f"{place.url}/shard-1-of-2/{manifest.store_id}/")
    assert (manifest.sequence, dict(manifest.item_counts)) == (61, {"other": 40, "scenes": 19})
    assert len(manifest.data) > 3
    assert manifest.changes == ()
    assert every_value(tmp_path / "new") == every_value(path)
    assert backups_in(place) == [url]
    verdict = verify_backup(url)
    assert (verdict.is_sound, verdict.item_count, verdict.sequence) == (True, 59, 61)


def test_a_later_backup_brings_only_what_changed(
    path: Path, place: ObjectFolder, tmp_path: Path
) -> None:
    """Changed, deleted and new items, a dropped index and answers come; both can be restored."""
    first, whole = back_up(place, path, part_bytes=PART_BYTES)
    before = every_value(path)
    write(
        path,
        Upsert("scenes", FINGERPRINT, [text_item("t5", 99), text_item("new")], "another"),
        Delete("scenes", ["t7"], "third"),
        Delete("other", [f"i{n}" for n in range(40)]),
        Drop("other"),
    )

    second, manifest = back_up(place, path, part_bytes=PART_BYTES)

    assert manifest.data == whole.data
    assert 0 < manifest.changed_bytes < 8_000
    restore(second, tmp_path / "second")
    assert every_value(tmp_path / "second") == every_value(path)
    restore(first, tmp_path / "first")
    assert every_value(tmp_path / "first") == before
    assert backups_in(place) == [first, second]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_every_backup_of_a_random_history_is_the_store_of_its_time(
    tmp_path: Path, seed: int
) -> None:
    """Log and answers forget their oldest meanwhile, and a copy comes where changes are many."""
    place = object_folder(f"file://{tmp_path}/place", is_new=True)
    path, draw = tmp_path / "shard", random.Random(seed)
    states, copy_count = [], 0
    for number in range(7):
        for step in range(1 + draw.randrange(5)):
            index_id = draw.choice(["scenes", "other", "third"])
            ids = [f"t{draw.randrange(60)}" for _ in range(draw.randrange(1, 9))]
            request_id = f"{number} {step}" if draw.random() < 0.7 else ""
            items = [text_item(each, draw.randrange(99)) for each in dict.fromkeys(ids)]
            choices: list[ItemWrite] = [
                Upsert(index_id, FINGERPRINT, items, request_id),
                Delete(index_id, ids, request_id),
                Drop(index_id, request_id),
            ]
            write(path, draw.choice(choices), kept_log_count=50, kept_request_count=5)
        url, manifest = back_up(place, path, part_bytes=2_000)
        copy_count += not manifest.changes
        states.append((url, every_value(path)))

    assert 1 <= copy_count < 7
    for number, (url, state) in enumerate(states):
        restore(url, tmp_path / f"restored {number}")
        assert every_value(tmp_path / f"restored {number}") == state


def test_a_copy_is_made_again_where_a_part_is_gone(path: Path, s3: FaultyS3) -> None:
    place = object_folder("s3://bucket/place")
    _, whole = back_up(place, path, part_bytes=PART_BYTES)
    del s3.objects[f"place/shard-1-of-2/{whole.store_id}/{whole.data[1].name}"]

    url, manifest = back_up(place, path, part_bytes=PART_BYTES)

    assert manifest.changes == ()
    assert verify_backup(url).is_sound


def test_a_damaged_part_is_never_restored(path: Path, s3: FaultyS3, tmp_path: Path) -> None:
    url, manifest = back_up(object_folder("s3://bucket/place"), path, part_bytes=PART_BYTES)
    key = next(key for key in s3.objects if manifest.data[2].name in key)
    s3.objects[key] = flipped(s3.objects[key])

    with pytest.raises(StoreRefused, match="were stored"):
        verify_backup(url)
    with pytest.raises(StoreRefused, match="were stored"):
        restore(url, tmp_path / "new")
    with pytest.raises(StoreRefused, match="unfinished restore"):
        ItemStore.open(tmp_path / "new", 1, 2)


def test_a_server_that_stores_other_bytes_is_found_out(path: Path, s3: FaultyS3) -> None:
    """Its ETag is that of what was sent. Nothing becomes visible, and the next backup is whole."""
    s3.stores_as = lambda key, data: data if key.endswith(".json") else flipped(data)
    place = object_folder("s3://bucket/place")

    with pytest.raises(StoreRefused, match="is damaged"):
        back_up(place, path, part_bytes=PART_BYTES)

    assert backups_in(place) == []
    s3.stores_as = as_sent
    url, manifest = back_up(place, path, part_bytes=PART_BYTES)
    assert verify_backup(url).is_sound
    assert len(s3.objects) == len(set(manifest.data)) + 1


def short(method: str, key: str, reply: Reply) -> Reply:
    """Cuts what is read, and says so."""
    return replace(reply, body=reply.body[:-1]) if method == "GET" and reply.etag else reply


def cut_off(method: str, key: str, reply: Reply) -> Reply:
    """Ends the connection amid what is read."""
    if method == "GET" and reply.etag:
        return replace(reply, body=reply.body[:100], length=len(reply.body))
    return reply


@pytest.mark.parametrize(("fault", "kind"), [(short, StoreRefused), (cut_off, OSError)])
def test_short_reads_fail_the_backup(
    path: Path, s3: FaultyS3, fault: object, kind: type[Exception]
) -> None:
    s3.fault = fault  # type: ignore[assignment]
    place = object_folder("s3://bucket/place", retry_seconds=RETRY_SECONDS)

    with pytest.raises(kind) as raised:
        back_up(place, path, part_bytes=PART_BYTES)

    assert "\n" not in str(raised.value)
    assert backups_in(place) == []


def test_a_wrong_etag_changes_nothing(path: Path, s3: FaultyS3) -> None:
    """The digest of what is read back decides."""

    def mislabel(method: str, key: str, reply: Reply) -> Reply:
        return replace(reply, etag='"wrong"')

    s3.fault = mislabel
    url, _ = back_up(object_folder("s3://bucket/place"), path, part_bytes=PART_BYTES)

    assert verify_backup(url).is_sound


@pytest.mark.parametrize(
    "status", [507, *(pytest.param(status, marks=pytest.mark.slow) for status in (403, 503))]
)
def test_a_full_bucket_keeps_the_backups_that_it_has(path: Path, s3: FaultyS3, status: int) -> None:
    """The error is one line; when there is room, the next backup is whole and nothing is left."""
    place = object_folder("s3://bucket/place", retry_seconds=RETRY_SECONDS)
    first, whole = back_up(place, path, part_bytes=PART_BYTES)
    write(path, Upsert("more", FINGERPRINT, [image_item(f"m{n}", n) for n in range(60)]))
    capacity = len(s3.objects) + 1

    def refuse_more(method: str, key: str) -> int:
        return status if method == "PUT" and len(s3.objects) >= capacity else 0

    s3.refuses = refuse_more

    with pytest.raises(OSError, match=str(status)) as raised:
        back_up(place, path, part_bytes=PART_BYTES)
    assert "\n" not in str(raised.value)
    assert backups_in(place) == [first]
    assert verify_backup(first).is_sound

    s3.refuses = refuse_none
    second, manifest = back_up(place, path, part_bytes=PART_BYTES)
    assert verify_backup(second).is_sound
    assert len(s3.objects) == len({*whole.parts, *manifest.parts}) + 2


def test_a_server_that_is_busy_for_a_while_is_tried_again(path: Path, s3: FaultyS3) -> None:
    """Every third call is refused, and each takes its time."""
    counter = iter(range(1_000_000))

    def refuse_a_third(method: str, key: str) -> int:
        return 503 if next(counter) % 3 == 0 else 0

    def slow(method: str, key: str, reply: Reply) -> Reply:
        time.sleep(0.05)
        return reply

    s3.refuses, s3.fault = refuse_a_third, slow
    url, _ = back_up(object_folder("s3://bucket/place"), path, part_bytes=PART_BYTES)

    assert verify_backup(url).is_sound


@pytest.mark.parametrize("moment", [".json", ""])
def test_a_backup_never_replaces_another(path: Path, s3: FaultyS3, moment: str) -> None:
    """Another process makes backup 1 before this one's manifest, or its first part."""
    place = object_folder("s3://bucket/place")
    theirs: list[str] = []

    def theirs_first(key: str, data: bytes) -> bytes:
        if key.endswith(moment) and not theirs:
            theirs.append("")
            with started_backup(path) as child:
                theirs[0] = child.communicate()[0].strip()
        return data

    s3.stores_as = theirs_first
    with pytest.raises(StoreRefused, match="another backup"):
        back_up(place, path, part_bytes=PART_BYTES + 1)

    assert backups_in(place) == theirs
    assert verify_backup(theirs[0]).is_sound


@pytest.mark.parametrize("call_count", [1, 3])
def test_a_killed_backup_leaves_nothing_half(
    path: Path, s3: FaultyS3, tmp_path: Path, call_count: int
) -> None:
    """kill -9 amid the uploads: nothing is visible; the next one reuses parts and doubles none."""
    reached, killed = threading.Event(), threading.Event()
    put_count = iter(range(1, 1_000))

    def hold(method: str, key: str, reply: Reply) -> Reply:
        if method == "PUT" and next(put_count) >= call_count:
            reached.set()
            killed.wait(60)
        return reply

    s3.fault = hold
    with started_backup(path) as child:
        assert reached.wait(60)
        child.send_signal(signal.SIGKILL)
        child.wait()
    killed.set()
    s3.fault = no_fault
    left = dict(s3.objects)
    place = object_folder("s3://bucket/place")
    assert left
    assert backups_in(place) == []

    url, manifest = back_up(place, path, part_bytes=PART_BYTES)

    assert left.keys() <= s3.objects.keys()
    assert len(s3.objects) == len(set(manifest.data)) + 1
    restore(url, tmp_path / "new")
    assert every_value(tmp_path / "new") == every_value(path)


@pytest.mark.parametrize("may_delete", [True, False])
def test_what_a_killed_backup_left_of_another_state_is_removed(
    path: Path, s3: FaultyS3, may_delete: bool
) -> None:
    """It stays where the credentials may not delete, which no backup needs."""
    place = object_folder("s3://bucket/place")
    url, manifest = back_up(place, path, part_bytes=PART_BYTES)
    folder = f"place/shard-1-of-2/{manifest.store_id}"
    s3.objects[f"{folder}/000002/{'0' * 64}"] = b"of a state that is gone"

    def refuse_deletes(method: str, key: str) -> int:
        return 403 if method == "POST" and not may_delete else 0

    s3.refuses = refuse_deletes
    back_up(place, path, part_bytes=PART_BYTES)

    assert (f"{folder}/000002/{'0' * 64}" in s3.objects) is not may_delete
    assert verify_backup(url).is_sound


@pytest.mark.parametrize("url", ["s3://bucket/none/000001.json", "foo://x/000001.json"])
def test_a_backup_that_is_not_there_is_named(url: str, s3: FaultyS3) -> None:
    with pytest.raises(OSError, match=r"none/000001\.json|foo://x") as raised:
        verify_backup(url)

    assert "\n" not in str(raised.value)


def started_backup(path: Path) -> subprocess.Popen[str]:
    """Starts a backup in a process of its own, which prints its URL."""
    script = (
        "import sys; from pathlib import Path;"
        "from tandem.platform.files.object_store import object_folder;"
        "from tandem.local.item_store.backup import back_up;"
        f"print(back_up(object_folder('s3://bucket/place'), Path(sys.argv[1]),"
        f" part_bytes={PART_BYTES})[0])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def write(
    path: Path,
    *writes: ItemWrite,
    kept_log_count: int = KEPT_CHANGE_COUNT,
    kept_request_count: int = KEPT_REQUEST_COUNT,
) -> None:
    """Applies writes to the store, which it opens and closes."""
    store = ItemStore.open(
        path,
        1,
        2,
        map_bytes=64 << 20,
        kept_log_count=kept_log_count,
        kept_request_count=kept_request_count,
    )
    store.apply(writes)
    store.close()


def test_every_database_of_a_store_is_in_a_change_set() -> None:
    """A database that is new has to be packed, or a later backup lacks it."""
    assert set(change_set._NAMES) == set(files._DATABASES)


def flipped(data: bytes) -> bytes:
    """Returns the data with one bit changed."""
    return bytes([data[0] ^ 1]) + data[1:]
