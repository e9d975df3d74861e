"""Makes stores as earlier releases wrote them."""

import json
from collections.abc import Sequence
from pathlib import Path

import lmdb
import pytest

from tandem.local.item_store import item_contents
from tandem.local.item_store.checksum import seal
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import ItemWrite
from tests.support.item_store.made_stores import MAP_BYTES


def make_version_2(path: Path, writes: Sequence[ItemWrite], map_bytes: int = MAP_BYTES) -> None:
    """Makes a store of schema 2: records that hold their contents, and no contents apart."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(item_contents, "APART_BYTES", 1 << 30)
        store = ItemStore.open(path, 0, 1, map_bytes=map_bytes)
        store.apply(writes)
        store.close()
    schema = {"schema_version": 2, "shard_number": 0, "shard_count": 1}
    with (
        lmdb.open(str(path), map_size=map_bytes, max_dbs=6, create=False) as env,
        env.begin(write=True) as txn,
    ):
        contents = env.open_db(b"contents", txn=txn)
        assert not txn.stat(contents)["entries"]
        txn.drop(contents)
        meta = env.open_db(b"meta", txn=txn)
        txn.put(b"schema", seal(b"schema", json.dumps(schema).encode()), db=meta)
