"""Tests that a full map refuses writes and keeps the rest, and that its limit can be raised."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tandem.contract.content import TextContent
from tandem.errors import (
    StoreFull,
)
from tandem.local.item_store.environment import StoreEnvironment, raise_limit
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Committed, Delete, Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item
from tests.support.item_store.made_stores import MAP_BYTES, scanned

ROOT = Path(__file__).parents[3]
WRITER = (
    "import sys; from pathlib import Path\n"
    "from tandem.local.item_store.item_store import ItemStore\n"
    "from tests.support.item_store.made_items import text_item, upserts_of\n"
    "store = ItemStore.open(Path(sys.argv[1]), 0, 1, map_bytes=64 << 20)\n"
    "items = [text_item(f'{n}', n, 256) for n in range(2000)]\n"
    "store.apply(upserts_of(items))\n"
    "store.close()\n"
)
"""Stores 2,000 items: a few megabytes."""


def test_a_full_map_refuses_writes_and_still_reads(path: Path) -> None:
    """Only the write that is too large gets StoreFull; others of its batch are stored."""
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    stored_ids = fill(store)
    huge = Upsert("scenes", FINGERPRINT, [text_item(f"huge {n}", n, 4096) for n in range(99)])
    small = Delete("scenes", stored_ids[:1])

    outcomes = store.apply([small, Upsert("big", FINGERPRINT, huge.items), small])

    assert isinstance(outcomes[1], StoreFull)
    assert [type(outcome) for outcome in outcomes] == [Committed, StoreFull, Committed]
    found = store.read_items("scenes", stored_ids)
    assert [item is not None for item in found] == [False] + [True] * (len(stored_ids) - 1)
    store.close()


def test_a_full_map_accepts_writes_again_after_deletions(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=16 << 20)
    stored_ids = fill(store)

    # Scattered, so that each delete changes another page of items and frees none of it whole.
    outcomes = [store.apply([Delete("scenes", stored_ids[n::20][:256])])[0] for n in range(8)]

    assert [type(outcome) for outcome in outcomes] == [Committed] * 8
    (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, [text_item("new", 1, 256)])])
    assert isinstance(outcome, Committed)
    store.close()


def test_a_raised_limit_takes_effect_while_writing(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    stored_ids = fill(store)
    items = [text_item(f"new {n}", n, 256) for n in range(256)]
    (refused,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
    assert isinstance(refused, StoreFull)

    raise_limit(path, 8 << 20)

    (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
    assert isinstance(outcome, Committed)
    assert store.env.map_bytes() == 8 << 20
    assert len(scanned(store, "scenes")) == len(stored_ids) + 256
    store.close()
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    assert store.env.map_bytes() == 8 << 20
    store.close()


def test_a_limit_can_be_raised_while_others_read(path: Path) -> None:
    store = ItemStore.open(path, 0, 1, map_bytes=1 << 20)
    stored_ids = fill(store)
    stop, faults, reads = threading.Event(), [], [0]

    def read() -> None:
        while not stop.wait(0.001):  # two that never wait leave the writer a fifth of a core
            try:
                assert None not in store.read_items("scenes", stored_ids[:50])
                assert len(scanned(store, "scenes")) >= len(stored_ids)
                reads[0] += 1
            except BaseException as error:
                faults.append(error)
                raise

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(10):
        raise_limit(path, (2 + number) << 20)
        # Large ones: a map is full after few, and a scan of all is short.
        item_ids = [f"{number}-{n}" for n in range(10)]
        outcome: object = None
        while not isinstance(outcome, StoreFull):
            items = [
                replace(text_item(each, 1, 256), content=TextContent(each * 2_000))
                for each in item_ids
            ]
            (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
            assert isinstance(outcome, Committed | StoreFull)
            item_ids = [f"{i}+" for i in item_ids]
    stop.set()
    for reader in readers:
        reader.join(60)

    assert faults == []
    assert reads[0] > 0
    assert store.env.map_bytes() == 11 << 20
    store.close()


def test_a_reader_with_a_smaller_map_follows_the_writer(path: Path) -> None:
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()
    reader = ItemStore.open(path, 0, 1, readonly=True, map_bytes=1 << 16)
    assert reader.index_ids() == []
    before = reader.env.map_bytes()

    run_python(WRITER, path)

    assert len(scanned(reader, "scenes")) == 2000
    assert reader.env.map_bytes() > before
    reader.close()


def test_a_reader_opens_while_a_writer_outgrows_its_map(path: Path) -> None:
    """Writes between mapping and the first transaction are not damage."""
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()
    entry_counts: list[Any] = []

    def use(env: lmdb.Environment) -> None:
        if not entry_counts:
            entry_counts.append(0)
            run_python(WRITER, path)
        with env.begin() as txn:
            entry_counts.append(txn.stat(env.open_db(b"items", txn))["entries"])

    reader = StoreEnvironment(
        path, use, map_bytes=1 << 16, max_database_count=5, readonly=True, lock=True
    )
    reader.open()

    assert entry_counts == [0, 2000]
    reader.close()


def test_an_unfilled_map_is_not_enlarged_repeatedly(path: Path) -> None:
    ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()

    def use(_: lmdb.Environment) -> None:
        raise lmdb.MapResizedError("as LMDB says it")

    reader = StoreEnvironment(
        path, use, map_bytes=1 << 16, max_database_count=5, readonly=True, lock=True
    )
    with pytest.raises(lmdb.MapResizedError):
        reader.open()


def fill(store: ItemStore) -> list[str]:
    """Upserts items of 1 kB, at last one by one, until the map is full; returns the stored ids."""
    stored_ids: list[str] = []
    for count in (64, 8, 1):
        outcome: object = None
        while not isinstance(outcome, StoreFull):
            item_ids = [f"{len(stored_ids) + number:05}" for number in range(count)]
            items = [text_item(item_id, 1, 256) for item_id in item_ids]
            (outcome,) = store.apply([Upsert("scenes", FINGERPRINT, items)])
            if isinstance(outcome, Committed):
                stored_ids += item_ids
    return stored_ids


def run_python(script: str, *arguments: Path) -> str:
    """Runs Python code in a child process and returns its output."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
