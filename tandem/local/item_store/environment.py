"""Opens the LMDB environment of a store, and remaps or reopens it between transactions.

LMDB's default flags stay: sync=False, metasync=False, writemap and lock=False each lost or
corrupted acknowledged writes in crash tests.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from tandem.errors import ServiceUnavailable
from tandem.local.item_store.reader_age import CommitTimes, reader_ids
from tandem.local.item_store.refused import StoreDamaged, StoreRefused
from tandem.platform.files.private_files import PRIVATE_FILE
from tandem.platform.files.shared_lock import SharedLock
from tandem.platform.files.whole_file import write_text_whole

DEFAULT_MAP_BYTES = 64 << 30
"""Address space, not disk: the file grows with what is written."""

DATA_NAME = "data.mdb"

MAX_LIMIT_BYTES = 64 << 40
"""Half of a process's address space; LMDB cannot open a larger map."""

_LIMIT_NAME = "map_bytes"
_MAX_LIMIT_CHARACTERS = 32
# Slots for concurrent read transactions over all processes; LMDB's own default is 126.
_MAX_READERS = 64
_DISK_FULL_BYTES = 1 << 20
# A commit and the writes alongside it may need as much.
_LITTLE_ROOM_BYTES = 16 << 20
# A delete of 256 scattered items rewrites at most some 800 pages of 4 KiB, merged ones included,
# and as many again of their contents.
_RESERVE_BYTES = 8 << 20
_PAGEFUL = bytes(4000)


class StoreEnvironment:
    """Wraps the environment at a path; read() and write() give its transactions."""

    def __init__(
        self,
        path: Path,
        use: Callable[[lmdb.Environment], object],
        *,
        map_bytes: int,
        max_database_count: int,
        readonly: bool,
        lock: bool,
    ) -> None:
        """Opens nothing yet; open() calls `use` with the environment.

        `lock` is False only for files that are never written.
        """
        self._path = path
        self._use = use
        self._map_bytes = map_bytes
        self._max_database_count = max_database_count
        self._readonly = readonly
        self._lock = lock
        self._gate = SharedLock()
        self._env: lmdb.Environment | None = None
        self._room_bytes = sys.maxsize
        self._commits = CommitTimes()

    def open(self) -> None:
        """Opens the environment; raises StoreRefused, and what `use` raises.

        Where another process has outgrown the map, a reader opens it again with a larger one.
        """
        # A reader follows the writer's limit by itself.
        limit = 0 if self._readonly else _raised_limit(self._path)
        while True:
            try:
                return self._open(max(self._map_bytes, limit))
            except lmdb.MapResizedError:
                larger_bytes = 2 * (self._path / DATA_NAME).stat().st_size
                if larger_bytes <= self._map_bytes:  # no process wrote, so the file is damaged
                    raise
                self._map_bytes = larger_bytes

    def _open(self, map_bytes: int) -> None:
        try:
            self._env = lmdb.open(
                str(self._path),
                map_size=map_bytes,
                max_dbs=self._max_database_count,
                max_readers=_MAX_READERS,
                readonly=self._readonly,
                create=not self._readonly,
                lock=self._lock,
                mode=PRIVATE_FILE,
            )
            self._use(self._env)
        except (
            lmdb.InvalidError,
            lmdb.VersionMismatchError,
            lmdb.CorruptedError,
            lmdb.PageNotFoundError,
        ) as error:
            self.close()
            raise StoreDamaged(
                f"{self._path} is damaged ({error}): restore it from a backup"
            ) from error
        except lmdb.LockError as error:
            self.close()
            raise StoreRefused(
                f"{self._path} is open in another container with process id {os.getpid()} too, "
                "by which LMDB distinguishes its readers: set shareProcessNamespace: true in the "
                "pod of both containers"
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the environment; no call may be in progress."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def reopen(self, check: Callable[[], object]) -> None:
        """Closes the environment, calls `check` and opens it again; transactions wait meanwhile.

        It is needed after a fault of the disk, when LMDB no longer trusts its memory. If it raises,
        all transactions raise ServiceUnavailable until a later call succeeds.
        """
        with self._gate.exclusive():
            self.close()
            check()
            self.open()

    @contextmanager
    def read(self) -> Iterator[lmdb.Transaction]:
        """Yields a read transaction whose values are views into the map."""
        while True:
            with self._gate.shared():
                try:
                    txn = self._opened().begin(buffers=True)
                except lmdb.MapResizedError:
                    pass
                else:
                    with txn:
                        yield txn
                    return
            self._follow_writer()

    @contextmanager
    def write(self) -> Iterator[lmdb.Transaction]:
        """Yields a write transaction, which commits and syncs unless it is left by an exception."""
        with self._gate.shared():
            with self._opened().begin(write=True) as txn:
                yield txn
                transaction_id = txn.id()
                self._room_bytes = self.free_bytes()
            self._commits.note(transaction_id)

    def check_reserve(self, txn: lmdb.Transaction, database: Any) -> None:  # noqa: ANN401
        """Raises lmdb.MapFullError where the transaction would leave too little room for a delete.

        A delete copies changed pages before it frees the old ones, so on a completely full map
        nothing could be deleted. LMDB does not report how many pages are free, so this takes them
        in a nested transaction and aborts that.
        """
        map_bytes = self.map_bytes()
        if self.used_bytes() < map_bytes // 2:  # the usual case
            return
        with self._opened().begin(write=True, parent=txn) as rehearsal:
            for number in range(min(_RESERVE_BYTES, map_bytes // 4) // 4096):
                rehearsal.put(b"reserve/%d" % number, _PAGEFUL, db=database)
            rehearsal.abort()

    def grow(self) -> bool:
        """Returns whether the map grew, because raise_limit() was called meanwhile."""
        with self._gate.exclusive():
            limit = _raised_limit(self._path)
            if limit <= self.map_bytes():
                return False
            self._opened().set_mapsize(limit)
            return True

    def map_bytes(self) -> int:
        """Returns the size of the map, which is the store's limit."""
        return int(self._opened().info()["map_size"])

    def used_bytes(self) -> int:
        """Returns how much of the map was ever used; pages freed since are used again first."""
        env = self._opened()
        return int(env.info()["last_pgno"] + 1) * int(env.stat()["psize"])

    def free_bytes(self) -> int:
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize

    def commit_age_seconds(self) -> float | None:
        """Returns how long ago this process committed last; None where it has not yet."""
        return self._commits.newest_age_seconds()

    def oldest_reader_age_seconds(self) -> float:
        """Returns a lower bound of how long a reader, of any process, has held pages back.

        Only the writer's process knows.
        """
        return self._commits.oldest_reader_age_seconds(reader_ids(self._opened().readers()))

    def check_readers(self) -> None:
        """Frees the slots of readers that were killed inside a transaction."""
        self._opened().reader_check()

    def copy_compacted(self, descriptor: int, txn: lmdb.Transaction) -> None:
        """Writes a copy as of a read transaction to a file or pipe, without free pages."""
        self._opened().copyfd(descriptor, compact=True, txn=txn)

    def walk_pages(self) -> None:
        """Reads every page on the way to a key; raises lmdb.Error where one is damaged.

        On some damage LMDB kills the process instead.
        """
        with Path(os.devnull).open("wb") as nowhere:
            while True:
                with self._gate.shared():
                    try:
                        return self._opened().copyfd(nowhere.fileno(), compact=True)
                    except lmdb.MapResizedError:
                        pass
                self._follow_writer()

    def is_full(self, error: lmdb.Error) -> bool:
        """Returns whether the error means a full disk or map, and leaves the environment intact."""
        if isinstance(error, lmdb.PanicError):
            return False
        if isinstance(error, lmdb.MapFullError):
            return True
        # LMDB reports a full disk as EIO, so look at the file system.
        return self.free_bytes() < _DISK_FULL_BYTES

    def had_little_room(self) -> bool:
        """Returns whether the disk was nearly full at the last commit.

        After a fault it may have room again: other writers to the disk gave up too.
        """
        return self._room_bytes < _LITTLE_ROOM_BYTES

    def _opened(self) -> lmdb.Environment:
        if self._env is None:
            raise ServiceUnavailable(
                service="index", why="its item store is closed after a fault of the disk"
            )
        return self._env

    def _follow_writer(self) -> None:
        """Maps twice what the writer uses, which has outgrown this process's map."""
        with self._gate.exclusive():
            self._opened().set_mapsize(max(self.map_bytes(), 2 * self.used_bytes()))


def raise_limit(path: Path, map_bytes: int) -> int:
    """Raises the store's size limit, even while a process writes to it; returns the limit in force.

    The limit is never lowered. The writer adopts it when its map is full, and at each start. Raises
    StoreRefused where there is no store, or where the limit exceeds the address space.
    """
    if map_bytes > MAX_LIMIT_BYTES:
        raise StoreRefused(
            f"{map_bytes >> 30:,} GiB exceeds the address space of a process; give at most "
            f"{MAX_LIMIT_BYTES >> 30:,}"
        )
    if not (path / DATA_NAME).is_file():
        raise StoreRefused(f"{path} has no item store: name the folder of a shard's store")
    if (limit := _raised_limit(path)) >= map_bytes:
        return limit
    write_text_whole(path / _LIMIT_NAME, f"{map_bytes}\n", PRIVATE_FILE)
    return map_bytes


def _raised_limit(path: Path) -> int:
    file = path / _LIMIT_NAME
    try:
        # Reading a named pipe, for example, would block.
        limit = int(file.read_bytes()[:_MAX_LIMIT_CHARACTERS]) if file.is_file() else 0
    except (OSError, ValueError):
        return 0
    return limit if 0 < limit <= MAX_LIMIT_BYTES else 0
