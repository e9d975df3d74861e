"""Tests that contents are stored once for all generations of an alias, and go with the last."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import lmdb
import numpy as np
import pytest

from tandem.contract.content import (
    Encoding,
    ImageContent,
    ImageTokens,
    TextContent,
    content_bytes,
)
from tandem.contract.generation_ids import alias_of
from tandem.errors import ItemCorrupt, ModelMismatch, StoreFull
from tandem.local.item_store.backup import back_up, restore
from tandem.local.item_store.item_contents import APART_BYTES
from tandem.local.item_store.item_record import item_key
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding
from tandem.local.item_store.verdict import verify_in_child
from tandem.platform.files.object_store import object_folder
from tandem.stages.item_write import Committed, Delete, ItemWrite, Upsert
from tandem.stages.items import ItemRecord
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item, unit_vector
from tests.support.item_store.made_stores import scanned
from tests.support.item_store.old_stores import make_version_2
from tests.support.item_store.stored_values import every_value, overwrite, stored_value

GENERATIONS = ["photos", "photos@2", "photos@11"]
PHOTOGRAPH_BYTES = 200_000
ENCODING_BYTES = 4 * 384 + 2 * 49 * 192
MAP_BYTES = 64 << 20


def photograph(item_id: str, seed: int) -> ItemRecord:
    """Returns an item with random bytes for a picture, and encodings of the usual size."""
    draw = np.random.default_rng(seed)
    tokens = ImageTokens(draw.standard_normal((49, 192)).astype(np.float16))
    content = ImageContent(draw.bytes(PHOTOGRAPH_BYTES))
    return ItemRecord(item_id, content, Encoding(unit_vector(seed, 384), tokens))


def upsert(index_id: str, *items: ItemRecord) -> Upsert:
    return Upsert(index_id, f"{FINGERPRINT} of {index_id}", items)


def content_keys(path: Path) -> list[bytes]:
    """Returns the keys of all contents that are stored apart in a closed store."""
    with lmdb.open(str(path), max_dbs=6, create=False) as env:
        database = env.open_db(b"contents", create=False)
        with env.begin() as txn:
            return [bytes(key) for key in txn.cursor(database).iternext(values=False)]


def content_key(index_id: str, item: ItemRecord) -> bytes:
    digest = hashlib.blake2b(content_bytes(item.content), digest_size=16).digest()
    return item_key(alias_of(index_id), item.item_id) + b"\0" + digest


@pytest.mark.parametrize("is_old", [False, True])
def test_a_second_generation_takes_only_its_encodings(path: Path, is_old: bool) -> None:
    """Also where an earlier release wrote the first; a delete from both gives the space back."""
    items = [photograph(f"p{number:03}", number) for number in range(60)]
    item_ids = [item.item_id for item in items]
    first = [upsert("photos", item) for item in items]
    if is_old:
        make_version_2(path, first)
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    if not is_old:
        store.apply(first)
    before_bytes = store.env.used_bytes()

    assert store.apply([upsert("photos@2", *items)]) == [Committed(120)]

    grown_bytes = store.env.used_bytes() - before_bytes
    # Three pictures at a time are moved into pages that those two transactions before left free.
    moved_bytes = 9 * PHOTOGRAPH_BYTES if is_old else 0
    assert grown_bytes - moved_bytes < 1.1 * len(items) * ENCODING_BYTES
    for index_id in GENERATIONS[:2]:
        found = store.read_items(index_id, item_ids)
        assert [each and each.content for each in found] == [item.content for item in items]
    for index_id in ("photos@2", "photos"):
        for item_id in item_ids:
            store.apply([Delete(index_id, [item_id])])
    with store.env.read() as txn, (path / "copy").open("wb") as copy:
        store.env.copy_compacted(copy.fileno(), txn)
        assert copy.tell() < 50_000
    store.close()
    verdict = verify_in_child(path)
    assert (verdict.is_sound, verdict.unnamed_content_count) == (True, 0)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))]
)
def test_a_random_history_of_generations_equals_a_dictionary(tmp_path: Path, seed: int) -> None:
    """No content is lost or left over, also after an upgrade, in restored backups."""
    draw, path = random.Random(seed), tmp_path / "shard"
    place = object_folder(f"file://{tmp_path}/place", is_new=True)
    held: dict[tuple[str, str], ItemRecord] = {}

    def drawn(index_id: str) -> ItemWrite:
        item_ids = draw.sample("abcd", draw.randrange(1, 4))
        if draw.random() < 0.3:
            for each in item_ids:
                held.pop((index_id, each), None)
            return Delete(index_id, item_ids)
        items = []
        for each in item_ids:
            size = draw.choice([5, APART_BYTES - 1, APART_BYTES, 9_000])
            filler = draw.choice("xy") * size
            if draw.random() < 0.5:
                text, made = TextContent(filler), text_item(each, draw.randrange(99))
                items.append(replace(made, content=text))
            else:
                picture, made = ImageContent(filler.encode()), image_item(each, draw.randrange(99))
                items.append(replace(made, content=picture))
        if draw.random() < 0.1:
            return Upsert(index_id, "another model", items)
        held.update({(index_id, item.item_id): item for item in items})
        return upsert(index_id, *items)

    first: list[ItemWrite] = [upsert(each, text_item("a")) for each in GENERATIONS]
    held.update({(each, "a"): text_item("a") for each in GENERATIONS})
    first += [drawn(draw.choice(GENERATIONS)) for _ in range(9)]
    if draw.random() < 0.5:
        make_version_2(path, first)
    else:
        write(path, first)
    for number in range(6):
        url, _ = back_up(place, path)
        check_equal(path, held)
        restore(url, tmp_path / f"restored {number}")
        check_equal(tmp_path / f"restored {number}", held)
        write(path, [drawn(draw.choice(GENERATIONS)) for _ in range(draw.randrange(1, 7))])
    check_equal(path, held)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_backup_of_a_second_generation_brings_encodings(tmp_path: Path, is_old: bool) -> None:
    """Pictures are in the backup before; moved ones come again, and the records without them."""
    path, items = tmp_path / "shard", [photograph(f"p{number}", number) for number in range(9)]
    first: list[ItemWrite] = [upsert("photos", *items)]
    make_version_2(path, first) if is_old else write(path, first)
    place = object_folder(f"file://{tmp_path}/place", is_new=True)
    back_up(place, path)
    write(path, [upsert("photos@2", *items[:3]), Delete("photos", ["p0"])])

    url, manifest = back_up(place, path)

    restore(url, tmp_path / "restored")
    assert every_value(tmp_path / "restored") == every_value(path)
    # The picture of p0, which changed twice, comes twice.
    moved_bytes = 3 * ENCODING_BYTES + 4 * PHOTOGRAPH_BYTES if is_old else 0
    expected_bytes = 3 * ENCODING_BYTES + moved_bytes
    assert manifest.changed_bytes < 1.1 * expected_bytes


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_an_item_without_its_content_is_corrupt_until_it_is_written(path: Path, fault: str) -> None:
    photo, other = photograph("a", 1), photograph("b", 2)
    write(path, [upsert(each, photo, other) for each in GENERATIONS[:2]])
    if fault == "missing":
        with lmdb.open(str(path), max_dbs=6) as env, env.begin(write=True) as txn:
            txn.delete(content_key("photos", photo), db=env.open_db(b"contents", txn=txn))
    else:
        key = content_key("photos", photo)
        value = stored_value(path, "contents", key)
        overwrite(path, "contents", key, value[:-1] + bytes([value[-1] ^ 1]))

    verdict = verify_in_child(path)

    assert (verdict.damage, verdict.corrupt_item_count) == ([], 2)
    assert "its content" in verdict.corrupt_items[0]
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    for index_id in GENERATIONS[:2]:
        with pytest.raises(ItemCorrupt):
            store.read_stored_contents(index_id, ["a"])
        damaged, sound = store.scan_embeddings(index_id)
        assert isinstance(damaged, ItemCorrupt)
        assert isinstance(sound, StoredEmbedding)
        assert [item_id for item_id, _ in store.scan_damaged(index_id)] == ["a"]
    store.apply([upsert("photos@2", photo)])
    found = [store.read_items(each, ["a"])[0] for each in GENERATIONS[:2]]
    assert [item and item.content for item in found] == [photo.content] * 2
    store.close()


def test_a_content_that_no_record_names_is_counted(path: Path) -> None:
    """It only takes room: the store is sound, and the next write of the item removes it."""
    write(path, [upsert("photos", photograph("a", 1), photograph("b", 2))])
    with lmdb.open(str(path), max_dbs=6) as env, env.begin(write=True) as txn:
        txn.put(b"photos\0a\0" + bytes(16), b"left over", db=env.open_db(b"contents", txn=txn))

    verdict = verify_in_child(path)

    assert (verdict.is_sound, verdict.unnamed_content_count) == (True, 1)
    write(path, [upsert("photos", photograph("a", 3))])
    assert verify_in_child(path).unnamed_content_count == 0


def test_a_read_counts_the_bytes_of_contents(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply([upsert("photos", *(photograph(each, 1) for each in "abcd"))])

    items = store.read_items("photos", list("abcd"), 3 * PHOTOGRAPH_BYTES)

    assert len(items) == 2
    store.close()


def test_a_text_is_searched_wherever_it_is_stored(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    texts = ["short", "long " * 1_000]
    items = [replace(text_item(each[:4]), content=TextContent(each)) for each in texts]
    store.apply([upsert("photos", *items), upsert("photos@2", *items)])

    for index_id in GENERATIONS[:2]:
        assert {each.text for each in scanned(store, index_id)} == set(texts)
    store.close()
    assert content_keys(path) == [content_key("photos", items[1])]


def test_a_full_map_loses_nothing_and_leaves_nothing(path: Path) -> None:
    """A write that did not fit may have moved contents out of records of an earlier release."""
    items = [photograph(f"p{number}", number) for number in range(20)]
    make_version_2(path, [upsert("photos", *items)], map_bytes=6 << 20)
    store = ItemStore.open(path, 0, 1, map_bytes=6 << 20)

    [outcome] = store.apply([upsert("photos@2", *items)])

    assert isinstance(outcome, StoreFull)
    found = store.read_items("photos", [item.item_id for item in items])
    assert [each and each.content for each in found] == [item.content for item in items]
    store.close()
    verdict = verify_in_child(path)
    assert (verdict.is_sound, verdict.unnamed_content_count) == (True, 0)


def test_a_killed_writer_leaves_a_sound_store(path: Path) -> None:
    """Killed in the middle of a second generation over a store of the release before."""
    items = [photograph(f"p{number}", number) for number in range(100)]
    make_version_2(path, [upsert("photos", item) for item in items], map_bytes=MAP_BYTES)
    code = (
        f"from pathlib import Path; from {__name__} import *;"
        f"store = ItemStore.open(Path({str(path)!r}), 0, 1, map_bytes=MAP_BYTES);"
        "[print(store.apply([upsert('photos@2', photograph(f'p{n}', n))]), flush=True)"
        " for n in range(100)]"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        for _ in range(30):
            child.stdout.readline()
        child.kill()

    verdict = verify_in_child(path)
    assert (verdict.is_sound, verdict.unnamed_content_count) == (True, 0)

    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    second_ids = store.item_ids("photos@2", 100)
    assert 30 <= len(second_ids) < 100
    found = store.read_items("photos", [item.item_id for item in items])
    assert [each and each.content for each in found] == [item.content for item in items]
    store.close()
    assert len(second_ids) <= len(content_keys(path)) <= len(second_ids) + 1


def write(path: Path, writes: Sequence[ItemWrite]) -> None:
    """Applies writes to the store, which it opens and closes."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    assert all(isinstance(each, Committed | ModelMismatch) for each in store.apply(writes))
    store.close()


def check_equal(path: Path, held: Mapping[tuple[str, str], ItemRecord]) -> None:
    """Checks that a store has these items, and no other item or content."""
    verdict = verify_in_child(path)
    assert (verdict.damage, verdict.corrupt_items, verdict.unnamed_content_count) == ([], [], 0)
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    for index_id in GENERATIONS:
        item_ids = sorted(item_id for each, item_id in held if each == index_id)
        assert store.item_ids(index_id, 99) == item_ids
        for stored in store.read_items(index_id, item_ids):
            assert stored is not None
            assert stored.content == held[index_id, stored.item_id].content
    store.close()
