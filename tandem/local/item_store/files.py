"""Opens the files of one shard's item store, or refuses them."""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb

from tandem.errors import ItemCorrupt, ServiceUnavailable
from tandem.local.item_store.checksum import ChecksumMismatch, seal, unseal
from tandem.local.item_store.environment import DATA_NAME, StoreEnvironment
from tandem.local.item_store.file_system import check_file_system
from tandem.local.item_store.refused import StoreDamaged
from tandem.local.item_store.refused import StoreRefused as StoreRefused
from tandem.local.item_store.writer_lock import WriterLock
from tandem.platform.files.private_files import PRIVATE_FILE, PRIVATE_FOLDER
from tandem.platform.files.whole_file import sync

SCHEMA_VERSION = 3
"""Version 2 has no contents apart; earlier ones are refused."""

RESTORING_NAME = "restoring"
"""The folder inside a store's where a restore prepares the files that it then renames."""

_LOCK_NAME = "lock.mdb"
_MAKING_NAME = "making"
INDEX_PREFIX = "index/"
_SCHEMA_KEY = "schema"
_STORE_ID_KEY = "store_id"
_LEAST_VERSION = 2
_CONTENTS = "contents"
_DATABASES_2 = ("items", "log", "meta", "requests", "request_order")
_DATABASES = (*_DATABASES_2, _CONTENTS)


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """Says which shard of how many a store belongs to."""

    shard_number: int
    shard_count: int

    def __str__(self) -> str:
        return f"shard {self.shard_number} of {self.shard_count}"


class StoreFiles:
    """Holds an open environment and its databases; at most one per path in a process."""

    env: StoreEnvironment
    items: Any  # py-lmdb does not export the type of its database handles
    log: Any
    meta: Any
    requests: Any
    request_order: Any
    contents: Any = None
    """None in a reader of an earlier schema."""
    identity: ShardIdentity
    schema_version: int
    store_id: str
    """Random, changed by each restore."""

    def __init__(
        self,
        path: Path,
        identity: ShardIdentity | None,
        *,
        readonly: bool,
        map_bytes: int,
        allow_any_file_system: bool = False,
        is_backup: bool = False,
    ) -> None:
        """Opens the files; without readonly, creates them if they are missing.

        Without an identity, any shard's files are accepted. A backup, which is never written, is
        read without a lock file. Raises StoreRefused for a network file system, a read-only mount,
        a second writer, another shard's files, a schema it does not read, damage, or a process id
        that another reader has too; with readonly, ServiceUnavailable while there is no store yet.
        """
        if identity and not 0 <= identity.shard_number < identity.shard_count:
            raise StoreRefused(f"{identity}: shards count from 0")
        self.path = path
        self._expected = identity
        self._readonly = readonly
        self.env = StoreEnvironment(
            path,
            self._use,
            map_bytes=map_bytes,
            max_database_count=len(_DATABASES),
            readonly=readonly,
            lock=not is_backup,
        )
        self._writer_lock: WriterLock | None = None
        if not allow_any_file_system:
            check_file_system(path)
        if readonly:
            _check_readable(path, is_backup=is_backup)
        else:
            self._writer_lock = _prepare_for_writing(path)
        try:
            if identity and not readonly and not (path / DATA_NAME).exists():
                _make_store(path, identity)
            self.env.open()
            if not readonly:
                self._clean_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the files; no call may be in progress."""
        self.env.close()
        if self._writer_lock is not None:
            self._writer_lock.release()
            self._writer_lock = None

    def get_meta(self, txn: lmdb.Transaction, key: str) -> Any:  # noqa: ANN401 (any JSON)
        """Returns the value that put_meta() stored under the key, or None; raises ItemCorrupt."""
        value = txn.get(key.encode(), db=self.meta)
        if value is None:
            return None
        try:
            return json.loads(bytes(unseal(key.encode(), value)))
        except ChecksumMismatch as error:
            raise ItemCorrupt(item_id=f"(meta {key})", why=str(error)) from error

    def put_meta(self, txn: lmdb.Transaction, key: str, value: object) -> None:
        txn.put(key.encode(), seal_json(key.encode(), value), db=self.meta)

    def delete_meta(self, txn: lmdb.Transaction, key: str) -> None:
        txn.delete(key.encode(), db=self.meta)

    def meta_keys(self, txn: lmdb.Transaction, prefix: str) -> Iterator[str]:
        """Yields the keys that start with the prefix, in order."""
        with txn.cursor(self.meta) as cursor:
            found = cursor.set_range(prefix.encode())
            while found and (key := bytes(cursor.key()).decode()).startswith(prefix):
                yield key
                found = cursor.next()

    def _use(self, env: lmdb.Environment) -> None:
        try:
            if self._readonly:
                self._use_databases(env)
            else:
                self._upgrade_databases(env)
        except lmdb.NotFoundError as error:
            raise StoreDamaged(
                f"{self.path} is damaged (a database is missing): restore it from a backup"
            ) from error

    def _use_databases(self, env: lmdb.Environment) -> None:
        self._open_databases(env, ("meta",), None)
        with env.begin() as txn:
            self._admit(self.get_meta(txn, _SCHEMA_KEY))
            self.store_id = str(self.get_meta(txn, _STORE_ID_KEY))
        is_ours = self.schema_version == SCHEMA_VERSION
        self._open_databases(env, _DATABASES if is_ours else _DATABASES_2, None)

    def _upgrade_databases(self, env: lmdb.Environment) -> None:
        # One transaction, so that no reader and no crash sees a store without its schema.
        with env.begin(write=True) as txn:
            # Databases are created only where the schema says so; otherwise one whose name was
            # damaged would come up empty.
            self._open_databases(env, ("meta",), txn)
            self._admit(self.get_meta(txn, _SCHEMA_KEY))
            self._open_databases(env, _DATABASES_2, txn)
            is_older = self.schema_version < SCHEMA_VERSION
            self._open_databases(env, (_CONTENTS,), txn, create=is_older)
            if is_older:  # Its records stay: each record has its own version.
                self.put_meta(txn, _SCHEMA_KEY, _schema(self.identity))
                self.schema_version = SCHEMA_VERSION
            self.store_id = str(self.get_meta(txn, _STORE_ID_KEY))
        with env.begin():  # takes a reader's slot, which raises LockError if it cannot
            pass

    def _open_databases(
        self,
        env: lmdb.Environment,
        names: Iterable[str],
        txn: lmdb.Transaction | None,
        *,
        create: bool = False,
    ) -> None:
        for name in names:
            setattr(self, name, env.open_db(name.encode(), txn=txn, create=create))

    def _admit(self, schema: dict[str, int] | None) -> None:
        """Adopts identity and version; raises StoreRefused where they are not as expected."""
        if schema is None:
            raise StoreDamaged(
                f"{self.path} is damaged (its schema is missing): restore it from a backup"
            )
        self.schema_version = schema["schema_version"]
        if not _LEAST_VERSION <= self.schema_version <= SCHEMA_VERSION:
            raise StoreRefused(
                f"{self.path} has schema version {self.schema_version}, this program reads "
                f"{_LEAST_VERSION} and {SCHEMA_VERSION}: run the release of Tandem that wrote it"
            )
        self.identity = ShardIdentity(schema["shard_number"], schema["shard_count"])
        if self._expected not in (None, self.identity):
            raise StoreRefused(
                f"{self.path} is {self.identity}, opened as {self._expected}: "
                "mount the right volume"
            )

    def _clean_up(self) -> None:
        # A restore that was killed after its last rename leaves this folder.
        shutil.rmtree(self.path / RESTORING_NAME, ignore_errors=True)
        shutil.rmtree(self.path / _MAKING_NAME, ignore_errors=True)
        sync(self.path, self.path.parent)
        self.env.check_readers()


def seal_json(key: bytes, value: object) -> bytes:
    return seal(key, json.dumps(value, separators=(",", ":")).encode())


def _make_store(path: Path, identity: ShardIdentity) -> None:
    """Creates an empty store in another folder and renames it into place.

    So a store that cannot be read is damaged, never merely half created.
    """
    making = path / _MAKING_NAME
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(PRIVATE_FOLDER)
    with (
        lmdb.open(str(making), map_size=1 << 20, max_dbs=len(_DATABASES), mode=PRIVATE_FILE) as env,
        env.begin(write=True) as txn,
    ):
        for name in _DATABASES:
            env.open_db(name.encode(), txn=txn)
        meta = env.open_db(b"meta", txn=txn)
        notes = {_SCHEMA_KEY: _schema(identity), _STORE_ID_KEY: uuid.uuid4().hex}
        for key, value in notes.items():
            txn.put(key.encode(), seal_json(key.encode(), value), db=meta)
    sync(making, path)
    (making / DATA_NAME).rename(path / DATA_NAME)
    sync(path)


def _schema(identity: ShardIdentity) -> dict[str, int]:
    return {
        "schema_version": SCHEMA_VERSION,
        "shard_number": identity.shard_number,
        "shard_count": identity.shard_count,
    }


def _prepare_for_writing(path: Path) -> WriterLock:
    try:
        path.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        lock = WriterLock(path)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        raise StoreRefused(
            f"{path} cannot be written ({error.strerror}): mount the volume read-write"
        ) from error
    if (path / RESTORING_NAME).exists() and not (path / DATA_NAME).exists():
        lock.release()
        raise StoreRefused(f"{path} has an unfinished restore: run tandem shard restore again")
    return lock


def _check_readable(path: Path, *, is_backup: bool) -> None:
    names = (DATA_NAME,) if is_backup else (DATA_NAME, _LOCK_NAME)
    if not all((path / name).exists() for name in names):
        raise ServiceUnavailable(service="index", why=f"there is no item store at {path} yet")
    # On a read-only mount LMDB silently does without its reader table, and the writer then reuses
    # pages that are being read.
    if not is_backup and not os.access(path / _LOCK_NAME, os.W_OK):
        raise StoreRefused(
            f"{path}/{_LOCK_NAME} is not writable: mount the volume read-write, for readers too"
        )
