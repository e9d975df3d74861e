"""The LMDB environment behind one shard's item store: opened by the rules, or refused.

LMDB's default flags are kept: sync=False, metasync=False, writemap and lock=False each lost or
corrupted acknowledged writes in crash tests.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import lmdb

from tandem.corpus.checksum import ChecksumMismatch, seal, unseal
from tandem.errors import ItemCorrupt, ServiceUnavailable

SCHEMA_VERSION = 1

_DATABASES = ("items", "log", "meta")
_SCHEMA_KEY = "schema"
# Slots for read transactions under way at once, over all processes; LMDB's own default is 126.
_MAX_READERS = 64
_DISK_FULL_BYTES = 1 << 20


class StoreRefused(Exception):
    """These files must not be opened as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class StoreFiles:
    """An open environment and its three databases; at most one of a path in a process."""

    path: Path
    env: lmdb.Environment
    items: Any  # py-lmdb does not export the type of its database handles
    log: Any
    meta: Any

    @classmethod
    def open(
        cls, path: Path, shard_number: int, shard_count: int, *, readonly: bool, map_bytes: int
    ) -> Self:
        """Opens the files, making them where there are none and readonly is not set.

        Raises StoreRefused for another shard's files, a newer schema or a read-only mount; with
        readonly, ServiceUnavailable while there is no store yet.
        """
        if not 0 <= shard_number < shard_count:
            raise StoreRefused(f"shard {shard_number} of {shard_count}: shards count from 0")
        schema = {
            "schema_version": SCHEMA_VERSION,
            "shard_number": shard_number,
            "shard_count": shard_count,
        }
        if readonly:
            _check_readable(path)
        else:
            path.mkdir(parents=True, exist_ok=True)
        env = lmdb.open(
            str(path),
            map_size=map_bytes,
            max_dbs=len(_DATABASES),
            max_readers=_MAX_READERS,
            readonly=readonly,
            create=not readonly,
        )
        try:
            files = cls(
                path, env, **(_existing_databases(env) if readonly else _databases(env, schema))
            )
            files._check_schema(schema)
        except BaseException:
            env.close()
            raise
        if not readonly:
            _sync_folders(path)
            env.reader_check()
        return files

    def get_meta(self, txn: lmdb.Transaction, key: str) -> Any:  # noqa: ANN401 (any JSON)
        """Returns what put_meta stored under the key, or None; raises ItemCorrupt."""
        value = txn.get(key.encode(), db=self.meta)
        if value is None:
            return None
        try:
            return json.loads(bytes(unseal(key.encode(), value)))
        except ChecksumMismatch as error:
            raise ItemCorrupt(item_id=f"(meta {key})", why=str(error)) from error

    def put_meta(self, txn: lmdb.Transaction, key: str, value: object) -> None:
        """Stores a JSON value under the key."""
        txn.put(key.encode(), seal_json(key.encode(), value), db=self.meta)

    def meta_keys(self, txn: lmdb.Transaction, prefix: str) -> Iterator[str]:
        """Yields the keys that start with the prefix, in order."""
        with txn.cursor(self.meta) as cursor:
            found = cursor.set_range(prefix.encode())
            while found and (key := bytes(cursor.key()).decode()).startswith(prefix):
                yield key
                found = cursor.next()

    def is_full(self, error: lmdb.Error) -> bool:
        """Says whether the error means a full disk or map, and no harm to the environment."""
        if isinstance(error, lmdb.PanicError):
            return False
        if isinstance(error, lmdb.MapFullError):
            return True
        # LMDB reports a full disk as EIO, so ask the file system.
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize < _DISK_FULL_BYTES

    def _check_schema(self, expected: dict[str, int]) -> None:
        with self.env.begin() as txn:
            schema = self.get_meta(txn, _SCHEMA_KEY)
        if schema["schema_version"] != SCHEMA_VERSION:
            raise StoreRefused(
                f"{self.path} has schema version {schema['schema_version']}, this program reads "
                f"{SCHEMA_VERSION}: run the release of Tandem that wrote it"
            )
        if schema != expected:
            raise StoreRefused(
                f"{self.path} is shard {schema['shard_number']} of {schema['shard_count']}, "
                f"opened as shard {expected['shard_number']} of {expected['shard_count']}: "
                "mount the right volume"
            )


def seal_json(key: bytes, value: object) -> bytes:
    """Returns a JSON value as it is stored under the key."""
    return seal(key, json.dumps(value, separators=(",", ":")).encode())


def _databases(env: lmdb.Environment, schema: dict[str, int]) -> dict[str, Any]:
    # One transaction, so that no reader and no crash sees a store without its schema.
    with env.begin(write=True) as txn:
        databases = {name: env.open_db(name.encode(), txn=txn) for name in _DATABASES}
        key = _SCHEMA_KEY.encode()
        txn.put(key, seal_json(key, schema), db=databases["meta"], overwrite=False)
    return databases


def _existing_databases(env: lmdb.Environment) -> dict[str, Any]:
    try:
        return {name: env.open_db(name.encode(), create=False) for name in _DATABASES}
    except lmdb.NotFoundError as error:
        raise ServiceUnavailable(
            service="index", why="its item store is still being made"
        ) from error


def _check_readable(path: Path) -> None:
    if not (path / "data.mdb").exists() or not (path / "lock.mdb").exists():
        raise ServiceUnavailable(service="index", why=f"there is no item store at {path} yet")
    # On a read-only mount LMDB silently goes without its reader table, and the writer then reuses
    # pages that are being read.
    if not os.access(path / "lock.mdb", os.W_OK):
        raise StoreRefused(
            f"{path}/lock.mdb is not writable: mount the volume read-write, for readers too"
        )


def _sync_folders(path: Path) -> None:
    """Makes the files' names durable; LMDB syncs only what is in them."""
    for folder in (path, path.parent):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
