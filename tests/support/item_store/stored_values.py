"""Reads and overwrites single values in the files of a closed item store.

LMDB allows one environment of a path in a process.
"""

from pathlib import Path

import lmdb

from tandem.local.item_store import files


def stored_value(path: Path, database: str, key: bytes) -> bytes:
    """Returns the value under the key; raises KeyError."""
    with lmdb.open(str(path), max_dbs=6, create=False) as env:
        handle = env.open_db(database.encode())
        with env.begin(db=handle) as txn:
            value = txn.get(key)
    if value is None:
        raise KeyError(key)
    return bytes(value)


def overwrite(path: Path, database: str, key: bytes, value: bytes) -> None:
    """Replaces the value under the key."""
    with lmdb.open(str(path), max_dbs=6, create=False) as env:
        handle = env.open_db(database.encode())
        with env.begin(db=handle, write=True) as txn:
            txn.put(key, value)


def every_value(path: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """Returns every key and value of a closed store, except for its store_id."""
    with lmdb.open(str(path), max_dbs=6, create=False) as env:
        databases = {name: env.open_db(name.encode(), create=False) for name in files._DATABASES}
        with env.begin() as txn:
            return {
                name: [each for each in txn.cursor(database) if each[0] != b"store_id"]
                for name, database in databases.items()
            }
