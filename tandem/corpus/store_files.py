"""The LMDB environment behind one shard's item store: opened by the rules, or refused.

LMDB's default flags are kept: sync=False, metasync=False, writemap and lock=False each lost or
corrupted acknowledged writes in crash tests.
"""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb

from tandem.corpus.checksum import ChecksumMismatch, seal, unseal
from tandem.corpus.file_system import check_file_system
from tandem.corpus.store_refused import StoreRefused as StoreRefused
from tandem.corpus.writer_lock import WriterLock
from tandem.errors import ItemCorrupt, ServiceUnavailable
from tandem.shared_lock import SharedLock

SCHEMA_VERSION = 2
"""Version 1 has records of version 1 alone, no request ids and no store id."""

DATA_NAME = "data.mdb"
RESTORING_NAME = "restoring"
"""The folder in a store's own in which a restore gathers what it will put in place at once."""

_LIMIT_NAME = "map_bytes"
_SCHEMA_KEY = "schema"
_STORE_ID_KEY = "store_id"
_READ_DATABASES = ("items", "log", "meta")
_DATABASES = (*_READ_DATABASES, "requests", "request_order")
# Slots for read transactions under way at once, over all processes; LMDB's own default is 126.
_MAX_READERS = 64
_DISK_FULL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """Which shard of how many a store is."""

    shard_number: int
    shard_count: int

    def __str__(self) -> str:
        return f"shard {self.shard_number} of {self.shard_count}"


class StoreFiles:
    """An open environment and its databases; at most one of a path in a process.

    Transactions are had from read() and write() alone, so that the environment can be closed or
    mapped anew between them.
    """

    items: Any  # py-lmdb does not export the type of its database handles
    log: Any
    meta: Any
    requests: Any
    request_order: Any
    identity: ShardIdentity
    schema_version: int
    store_id: str
    """Random, made with the store and anew by each restore; empty in a reader of schema 1."""

    def __init__(
        self,
        path: Path,
        identity: ShardIdentity | None,
        *,
        readonly: bool,
        map_bytes: int,
        allow_any_file_system: bool = False,
    ) -> None:
        """Opens the files, making them where there are none and readonly is not set.

        Without an identity it takes the files for what they say they are. Raises StoreRefused for
        a network file system, a read-only mount, a second writer, another shard's files, a newer
        schema, damage, or a process id that is another reader's too; with readonly,
        ServiceUnavailable while there is no store yet.
        """
        if identity and not 0 <= identity.shard_number < identity.shard_count:
            raise StoreRefused(f"{identity}: shards count from 0")
        self.path = path
        self._expected = identity
        self._readonly = readonly
        self._map_bytes = map_bytes
        self._gate = SharedLock()
        self._env: lmdb.Environment | None = None
        self._writer_lock: WriterLock | None = None
        if not allow_any_file_system:
            check_file_system(path)
        if readonly:
            _check_readable(path)
        else:
            self._writer_lock = _prepare_for_writing(path)
        try:
            self._open()
            if not readonly:
                self._clean_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the files; no call may be under way."""
        self._close_env()
        if self._writer_lock is not None:
            self._writer_lock.release()
            self._writer_lock = None

    def reopen(self) -> None:
        """Closes the environment and opens it anew, once the transactions under way have ended.

        For after a fault of the disk, when LMDB no longer trusts what it has in memory. Where it
        raises, all further transactions raise ServiceUnavailable until it succeeds.
        """
        with self._gate.exclusive():
            self._close_env()
            self._open()

    @contextmanager
    def read(self) -> Iterator[lmdb.Transaction]:
        """Gives a read transaction whose values are views into the map."""
        while True:
            with self._gate.shared():
                try:
                    txn = self._environment().begin(buffers=True)
                except lmdb.MapResizedError:
                    pass
                else:
                    with txn:
                        yield txn
                    return
            self._follow_writer()

    @contextmanager
    def write(self) -> Iterator[lmdb.Transaction]:
        """Gives a write transaction, committed and synced unless an exception leaves it."""
        with self._gate.shared(), self._environment().begin(write=True) as txn:
            yield txn

    @contextmanager
    def rehearse(self, txn: lmdb.Transaction) -> Iterator[lmdb.Transaction]:
        """Gives a transaction inside a write transaction, always dropped."""
        with self._environment().begin(write=True, parent=txn) as rehearsal:
            yield rehearsal
            rehearsal.abort()

    def grow(self) -> bool:
        """Says whether the map is larger now, because raise_limit() was called meanwhile."""
        with self._gate.exclusive():
            limit, env = _raised_limit(self.path), self._environment()
            if limit <= env.info()["map_size"]:
                return False
            env.set_mapsize(limit)
            self._map_bytes = limit
            return True

    def map_bytes(self) -> int:
        """Returns how far the map may be filled."""
        return int(self._environment().info()["map_size"])

    def used_bytes(self) -> int:
        """Returns how much of the map was ever used; pages freed since are used again first."""
        env = self._environment()
        return int(env.info()["last_pgno"] + 1) * int(env.stat()["psize"])

    def check_readers(self) -> None:
        """Frees the slots of readers that were killed inside a transaction."""
        self._environment().reader_check()

    def copy_compacted(self, folder: Path) -> None:
        """Writes the state of one moment to data.mdb in an empty folder, without free pages."""
        with self._gate.shared():
            self._environment().copy(str(folder), compact=True)

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

    def _open(self) -> None:
        self._env = _open_environment(
            self.path, self._readonly, max(self._map_bytes, _raised_limit(self.path))
        )
        try:
            if self._readonly:
                self._use_databases()
            else:
                self._make_databases()
        except lmdb.LockError as error:
            raise StoreRefused(
                f"{self.path} is open in another container whose process id is {os.getpid()} too, "
                "and LMDB tells its readers apart by that: set shareProcessNamespace: true in the "
                "pod that both containers are in"
            ) from error
        except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
            raise _damaged(self.path, error) from error

    def _close_env(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def _environment(self) -> lmdb.Environment:
        if self._env is None:
            raise ServiceUnavailable(
                service="index", why="its item store is closed after a fault of the disk"
            )
        return self._env

    def _follow_writer(self) -> None:
        """Maps as much as the writer, which has written past the end of this process's map."""
        with self._gate.exclusive():
            self._environment().set_mapsize(0)

    def _use_databases(self) -> None:
        env = self._environment()
        try:
            for name in _READ_DATABASES:
                setattr(self, name, env.open_db(name.encode(), create=False))
        except lmdb.NotFoundError as error:
            raise ServiceUnavailable(
                service="index", why="its item store is still being made"
            ) from error
        with env.begin() as txn:
            self._admit(self.get_meta(txn, _SCHEMA_KEY))
            self.store_id = self.get_meta(txn, _STORE_ID_KEY) or ""

    def _make_databases(self) -> None:
        env = self._environment()
        # One transaction, so that no reader and no crash sees a store without its schema.
        with env.begin(write=True) as txn:
            self.meta = env.open_db(b"meta", txn=txn)
            self._admit(self.get_meta(txn, _SCHEMA_KEY))
            for name in _DATABASES:
                setattr(self, name, env.open_db(name.encode(), txn=txn))
            if self.schema_version < SCHEMA_VERSION:
                self._put_schema(txn)
            store_id = self.get_meta(txn, _STORE_ID_KEY)
            if store_id is None:
                store_id = uuid.uuid4().hex
                self.put_meta(txn, _STORE_ID_KEY, store_id)
            self.store_id = store_id
        with env.begin():  # takes a reader's slot, which raises LockError where it cannot be had
            pass

    def _admit(self, schema: dict[str, int] | None) -> None:
        """Takes over identity and version; raises StoreRefused where they are not as expected."""
        if schema is None:  # the store is being made
            if self._expected is None:
                raise StoreRefused(f"{self.path} has no schema: it is no item store")
            self.identity, self.schema_version = self._expected, 0
            return
        self.schema_version = schema["schema_version"]
        if self.schema_version > SCHEMA_VERSION:
            raise StoreRefused(
                f"{self.path} has schema version {self.schema_version}, this program reads "
                f"{SCHEMA_VERSION}: run the release of Tandem that wrote it"
            )
        self.identity = ShardIdentity(schema["shard_number"], schema["shard_count"])
        if self._expected not in (None, self.identity):
            raise StoreRefused(
                f"{self.path} is {self.identity}, opened as {self._expected}: "
                "mount the right volume"
            )

    def _put_schema(self, txn: lmdb.Transaction) -> None:
        # Records of version 1 stay as they are: each says its own version.
        self.schema_version = SCHEMA_VERSION
        self.put_meta(
            txn,
            _SCHEMA_KEY,
            {
                "schema_version": SCHEMA_VERSION,
                "shard_number": self.identity.shard_number,
                "shard_count": self.identity.shard_count,
            },
        )

    def _clean_up(self) -> None:
        # A restore that was killed after it put the store in place leaves this behind.
        shutil.rmtree(self.path / RESTORING_NAME, ignore_errors=True)
        sync_folders(self.path, self.path.parent)
        self.check_readers()


def raise_limit(path: Path, map_bytes: int) -> None:
    """Lets the store at the path grow to so many bytes, also while a process writes to it.

    The writer takes it up when its map is full, and at each start.
    """
    partial = path / f"{_LIMIT_NAME}.part"
    with partial.open("w") as file:
        file.write(f"{map_bytes}\n")
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path / _LIMIT_NAME)
    sync_folders(path)


def seal_json(key: bytes, value: object) -> bytes:
    """Returns a JSON value as it is stored under the key."""
    return seal(key, json.dumps(value, separators=(",", ":")).encode())


def sync_folders(*folders: Path) -> None:
    """Makes the names in folders durable; a file's own sync covers only what is in it."""
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open_environment(path: Path, readonly: bool, map_bytes: int) -> lmdb.Environment:
    try:
        return lmdb.open(
            str(path),
            map_size=map_bytes,
            max_dbs=len(_DATABASES),
            max_readers=_MAX_READERS,
            readonly=readonly,
            create=not readonly,
        )
    except (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: lmdb.Error) -> StoreRefused:
    return StoreRefused(f"{path} is damaged ({error}): restore it from a backup")


def _raised_limit(path: Path) -> int:
    try:
        return int((path / _LIMIT_NAME).read_text())
    except (OSError, ValueError):
        return 0


def _prepare_for_writing(path: Path) -> WriterLock:
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = WriterLock(path)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        raise StoreRefused(
            f"{path} cannot be written ({error.strerror}): mount the volume read-write"
        ) from error
    if (path / RESTORING_NAME).exists() and not (path / DATA_NAME).exists():
        lock.release()
        raise StoreRefused(
            f"{path} has a restore in it that did not end: run tandem shard restore again"
        )
    return lock


def _check_readable(path: Path) -> None:
    if not (path / DATA_NAME).exists() or not (path / "lock.mdb").exists():
        raise ServiceUnavailable(service="index", why=f"there is no item store at {path} yet")
    # On a read-only mount LMDB silently goes without its reader table, and the writer then reuses
    # pages that are being read.
    if not os.access(path / "lock.mdb", os.W_OK):
        raise StoreRefused(
            f"{path}/lock.mdb is not writable: mount the volume read-write, for readers too"
        )
