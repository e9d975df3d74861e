"""Reads and overwrites single values in the files of a closed item store.

LMDB allows one environment of a path in a process.
"""

from pathlib import Path

import lmdb


def stored_value(path: Path, database: str, key: bytes) -> bytes:
    """Returns the value under the key; raises KeyError."""
    with lmdb.open(str(path), max_dbs=5, create=False) as env:
        handle = env.open_db(database.encode())
        with env.begin(db=handle) as txn:
            value = txn.get(key)
    if value is None:
        raise KeyError(key)
    return bytes(value)


def overwrite(path: Path, database: str, key: bytes, value: bytes) -> None:
    """Replaces the value under the key."""
    with lmdb.open(str(path), max_dbs=5, create=False) as env:
        handle = env.open_db(database.encode())
        with env.begin(db=handle, write=True) as txn:
            txn.put(key, value)
