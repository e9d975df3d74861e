"""Tests that damaged stores are found, even if reading them kills a process."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tandem.local.item_store.checksum import seal
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.files import SCHEMA_VERSION, seal_json
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.verdict import CheckDepth, Verdict, verify_in_child
from tandem.stages.item_write import Delete, Upsert
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item
from tests.support.item_store.stored_values import overwrite, stored_value

MAP_BYTES = 64 << 20
PAGE_BYTES = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Makes a closed store with items of both kinds, deletions, answers and free pages."""
    path = tmp_path / "shard"
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES, kept_log_count=600)
    for seed in range(3):
        items = [text_item(f"{number:03}", seed) for number in range(200)]
        store.apply([Upsert("scenes", FINGERPRINT, items, f"request {seed}")])
    store.apply([Upsert("scenes", FINGERPRINT, [image_item(f"i{n}", n) for n in range(50)])])
    store.apply([Delete("scenes", [f"{number:03}" for number in range(0, 200, 3)])])
    store.close()
    return path


@pytest.mark.parametrize("depth", CheckDepth)
def test_a_sound_store_passes(path: Path, depth: CheckDepth) -> None:
    verdict = verify_in_child(path, depth)

    assert verdict == Verdict(path, item_count=183, sequence=717)
    assert verdict.is_sound


def test_a_store_is_checked_during_writes(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item("new")])])

    verdict = verify_in_child(path)

    assert verdict == Verdict(path, item_count=184, sequence=718, has_writer=True)
    store.close()


def test_a_growing_store_is_checked_during_writes(path: Path) -> None:
    """Writes past the end of the checker's map are not damage."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            items = [image_item(f"grown {number + n}", n) for n in range(100)]
            store.apply([Upsert("scenes", FINGERPRINT, items)])
            number += 100
            stop.wait(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        verdicts = [verify_in_child(path) for _ in range(2)]
    finally:
        stop.set()
        writer.join()

    assert [(verdict.is_sound, verdict.damage) for verdict in verdicts] == [(True, [])] * 2
    assert verdicts[0].sequence < verdicts[1].sequence <= store.sequence()
    store.close()


def truncate(data: bytearray) -> None:
    del data[len(data) // 2 // PAGE_BYTES * PAGE_BYTES :]


def zero_all_but_the_first_pages(data: bytearray) -> None:
    data[2 * PAGE_BYTES :] = bytes(len(data) - 2 * PAGE_BYTES)


def another_format(data: bytearray) -> None:
    data[:] = b"SQLite format 3\0" * 4096


@pytest.mark.parametrize(
    "damage",
    [truncate, zero_all_but_the_first_pages, another_format],
)
@pytest.mark.parametrize("depth", [CheckDepth.WALK, CheckDepth.VALUES])
def test_damage_that_kills_a_process_is_reported(
    path: Path, depth: CheckDepth, damage: Callable[[bytearray], None]
) -> None:
    """LMDB reacts with an assertion or a bus error."""
    data = bytearray((path / DATA_NAME).read_bytes())
    damage(data)
    (path / DATA_NAME).write_bytes(data)

    verdict = verify_in_child(path, depth)

    assert verdict.damage
    assert not verdict.is_sound


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="no item store"):
        verify_in_child(tmp_path)


def test_no_damage_is_called_sound_and_read_wrongly(path: Path) -> None:
    """Zeroed pages and flipped bits anywhere are found, or do not matter."""
    whole, expected = (path / DATA_NAME).read_bytes(), contents(path)
    rng = random.Random(5)
    found_count = 0
    for number in range(24):  # most pages of a small store are free ones
        data = bytearray(whole)
        page = rng.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
        if number % 2:
            data[page : page + PAGE_BYTES] = bytes(PAGE_BYTES)
        else:
            data[page + rng.randrange(PAGE_BYTES)] ^= 1 << rng.randrange(8)
        (path / DATA_NAME).write_bytes(data)

        if verify_in_child(path).is_sound:
            assert contents(path) == expected
        else:
            found_count += 1
        if found_count == 2:
            break

    assert found_count == 2


@pytest.mark.parametrize("name", [b"items", b"meta", b"requests"])
def test_a_database_that_is_gone_is_damage(path: Path, name: bytes) -> None:
    with lmdb.open(str(path), max_dbs=6) as env, env.begin(write=True) as txn:
        txn.drop(env.open_db(name, txn=txn))

    assert "a database is missing" in verify_in_child(path, CheckDepth.WALK).damage[0]
    with pytest.raises(StoreRefused, match="a database is missing"):
        ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)


def test_a_schema_that_is_gone_is_damage(path: Path) -> None:
    remove(path, "meta", b"schema")

    assert "its schema is missing" in verify_in_child(path, CheckDepth.WALK).damage[0]
    with pytest.raises(StoreRefused, match="its schema is missing"):
        ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)


def test_a_newer_schema_is_not_damage(path: Path) -> None:
    schema = {"schema_version": SCHEMA_VERSION + 1, "shard_number": 0, "shard_count": 1}
    overwrite(path, "meta", b"schema", seal_json(b"schema", schema))

    with pytest.raises(StoreRefused, match="run the release of Tandem that wrote it"):
        verify_in_child(path)


def test_a_check_without_memory_or_time_does_not_pass(path: Path) -> None:
    with pytest.raises(StoreRefused, match="within the memory limit"):
        verify_in_child(path, memory_bytes=90 << 20)
    assert "did not finish within 0 s" in verify_in_child(path, timeout_seconds=0.01).damage[0]


@pytest.mark.parametrize("key", [b"schema", b"sequence"])
def test_damaged_notes_are_damage(path: Path, key: bytes) -> None:
    overwrite(path, "meta", key, stored_value(path, "meta", key)[:-1] + b"?")

    assert "CRC32" in verify_in_child(path, CheckDepth.WALK).damage[0]


def test_only_the_damaged_item_is_named(path: Path) -> None:
    key = item_key("scenes", "004")
    overwrite(path, "items", key, stored_value(path, "items", key)[:-1] + b"?")

    assert verify_in_child(path, CheckDepth.WALK).is_sound
    verdict = verify_in_child(path)
    assert (verdict.damage, verdict.corrupt_item_count) == ([], 1)
    assert "scenes/004" in verdict.corrupt_items[0]


def test_an_item_that_is_lost_is_missed(path: Path) -> None:
    remove(path, "items", item_key("scenes", "004"))

    (fault,) = verify_in_child(path).corrupt_items

    assert "scenes/004" in fault
    assert "is missing" in fault


def test_an_item_of_an_earlier_state_is_found(path: Path) -> None:
    """The old record is sound, but does not match the change log."""
    key = item_key("scenes", "004")
    before = stored_value(path, "items", key)
    for write, operation in (
        (Upsert("scenes", FINGERPRINT, [text_item("004", 9)]), "change 718 was its upsert"),
        (Delete("scenes", ["004"]), "change 719 was its delete"),
    ):
        store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
        store.apply([write])
        store.close()
        overwrite(path, "items", key, before)
        assert operation in verify_in_child(path).corrupt_items[0]


def test_a_key_in_the_wrong_place_is_damage(path: Path) -> None:
    """One flipped bit in a branch page sends readers to the wrong leaf."""
    item_ids = [f"{number:03}" for number in range(0, 200, 2) if number % 3]
    data_path = path / DATA_NAME
    sound = data_path.read_bytes()
    told: list[Any] = []
    for start in range(2 * PAGE_BYTES, len(sound), PAGE_BYTES):
        page = sound[start : start + PAGE_BYTES]
        is_branch = page[10] & 1  # P_BRANCH, in the page's flags
        found = [at for i in item_ids if (at := page.find(item_key("scenes", i))) >= 0]
        if is_branch and found:
            damaged = bytearray(sound)
            # The number grows by one, so its own item is looked up before it.
            damaged[start + found[0] + len(item_key("scenes", "000")) - 1] ^= 1
            data_path.write_bytes(damaged)
            told += verify_in_child(path, CheckDepth.WALK).damage

    assert told == ["items has 1 keys that a look-up does not find"]


def test_a_hole_in_the_change_log_is_damage(path: Path) -> None:
    remove(path, "log", (300).to_bytes(8, "big"))
    assert "599 changes from 118 to 717" in verify_in_child(path, CheckDepth.WALK).damage[0]

    remove(path, "log", (717).to_bytes(8, "big"))
    assert "ends at 716, but the store is at 717" in verify_in_child(path).damage[0]


def test_answers_out_of_order_are_damage(path: Path) -> None:
    overwrite(path, "requests", b"lonely", seal_json(b"lonely", ["", 1, 0]))
    assert "never be forgotten" in verify_in_child(path).damage[0]
    overwrite(path, "requests", b"lonely", seal(b"other", b"[]"))
    assert "damaged" in verify_in_child(path).damage[0]


def test_progress_is_reported(path: Path) -> None:
    told: list[tuple[int, int]] = []

    verify_in_child(path, show=lambda done, total: told.append((done, total)))

    assert told == sorted(told)
    assert told[-1] == (183 + 600, 183 + 600)


def remove(path: Path, database: str, key: bytes) -> None:
    """Deletes a key directly in the file."""
    with lmdb.open(str(path), max_dbs=6) as env, env.begin(write=True) as txn:
        assert txn.delete(key, db=env.open_db(database.encode(), txn=txn))


def contents(path: Path) -> list[str]:
    """Returns all items by id."""
    store = ItemStore.open(path, 0, 1, readonly=True)
    try:
        found = store.scan_embeddings("scenes")
        ids = [item.item_id for item in found if isinstance(item, StoredEmbedding)]
        return [repr(item) for item in store.read_items("scenes", ids)]
    finally:
        store.close()
