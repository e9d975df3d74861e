"""The LMDB environment of a store, which can be mapped or opened anew between transactions.

LMDB's default flags are kept: sync=False, metasync=False, writemap and lock=False each lost or
corrupted acknowledged writes in crash tests.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from tandem.errors import ServiceUnavailable
from tandem.item_store.reader_age import CommitTimes, reader_ids
from tandem.item_store.refused import StoreDamaged, StoreRefused
from tandem.private_files import PRIVATE_FILE
from tandem.shared_lock import SharedLock

DEFAULT_MAP_BYTES = 64 << 30
"""Address space, not disk: the file grows with what is written."""

DATA_NAME = "data.mdb"

MAX_LIMIT_BYTES = 64 << 40
"""Half of the addresses of a process; LMDB cannot open a map that is larger."""

_LIMIT_NAME = "map_bytes"
_MAX_LIMIT_CHARACTERS = 32
# Slots for read transactions under way at once, over all processes; LMDB's own default is 126.
_MAX_READERS = 64
_DISK_FULL_BYTES = 1 << 20
# A commit, and what is written beside it meanwhile, may need as much.
_LITTLE_ROOM_BYTES = 16 << 20


class StoreEnvironment:
    """An environment at a path. Transactions are had from read() and write() alone."""

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
        """Opens nothing yet. `use` is called with each environment that is opened.

        `lock` is False only for files that nobody ever writes.
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
        """Opens it; raises StoreRefused, and what `use` raises.

        Where another process writes so much meanwhile that it no longer fits the map, a reader
        opens it anew with a larger one.
        """
        # A reader maps more by itself where the writer has gone further.
        limit = 0 if self._readonly else _raised_limit(self._path)
        while True:
            try:
                return self._open(max(self._map_bytes, limit))
            except lmdb.MapResizedError:
                larger_bytes = 2 * (self._path / DATA_NAME).stat().st_size
                if larger_bytes <= self._map_bytes:  # nobody wrote, so the file is at fault
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
                f"{self._path} is open in another container whose process id is {os.getpid()} too, "
                "and LMDB tells its readers apart by that: set shareProcessNamespace: true in the "
                "pod that both containers are in"
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes it; no call may be under way."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def reopen(self, check: Callable[[], object]) -> None:
        """Closes the environment, calls `check`, and opens it anew; transactions wait meanwhile.

        For after a fault of the disk, when LMDB no longer trusts what it has in memory. Where it
        raises, all further transactions raise ServiceUnavailable until it succeeds.
        """
        with self._gate.exclusive():
            self.close()
            check()
            self.open()

    @contextmanager
    def read(self) -> Iterator[lmdb.Transaction]:
        """Gives a read transaction whose values are views into the map."""
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
        """Gives a write transaction, committed and synced unless an exception leaves it."""
        with self._gate.shared():
            with self._opened().begin(write=True) as txn:
                yield txn
                transaction_id = txn.id()
                self._room_bytes = self.free_bytes()
            self._commits.note(transaction_id)

    @contextmanager
    def rehearse(self, txn: lmdb.Transaction) -> Iterator[lmdb.Transaction]:
        """Gives a transaction inside a write transaction, always dropped."""
        with self._opened().begin(write=True, parent=txn) as rehearsal:
            yield rehearsal
            rehearsal.abort()

    def grow(self) -> bool:
        """Says whether the map is larger now, because raise_limit() was called meanwhile."""
        with self._gate.exclusive():
            limit = _raised_limit(self._path)
            if limit <= self.map_bytes():
                return False
            self._opened().set_mapsize(limit)
            return True

    def map_bytes(self) -> int:
        """Returns how far the map may be filled."""
        return int(self._opened().info()["map_size"])

    def used_bytes(self) -> int:
        """Returns how much of the map was ever used; pages freed since are used again first."""
        env = self._opened()
        return int(env.info()["last_pgno"] + 1) * int(env.stat()["psize"])

    def free_bytes(self) -> int:
        """Returns how much room the disk has."""
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize

    def commit_age_seconds(self) -> float | None:
        """Returns how long ago this process committed last; None where it has not yet."""
        return self._commits.newest_age_seconds()

    def oldest_reader_age_seconds(self) -> float:
        """Returns at least how long some reader has held pages back; in the writer's process.

        Readers of all processes count.
        """
        return self._commits.oldest_reader_age_seconds(reader_ids(self._opened().readers()))

    def check_readers(self) -> None:
        """Frees the slots of readers that were killed inside a transaction."""
        self._opened().reader_check()

    def copy_compacted(self, folder: Path) -> None:
        """Writes the state of one moment to data.mdb in a folder, without free pages."""
        while True:
            with self._gate.shared():
                try:
                    return self._opened().copy(str(folder), compact=True)
                except lmdb.MapResizedError:
                    (folder / DATA_NAME).unlink(missing_ok=True)
            self._follow_writer()

    def walk_pages(self) -> None:
        """Reads every page that a key is found by; raises lmdb.Error where one is not sound.

        On some damage LMDB ends the process instead.
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
        """Says whether the error means a full disk or map, and no harm to the environment."""
        if isinstance(error, lmdb.PanicError):
            return False
        if isinstance(error, lmdb.MapFullError):
            return True
        # LMDB reports a full disk as EIO, so ask the file system.
        return self.free_bytes() < _DISK_FULL_BYTES

    def had_little_room(self) -> bool:
        """Says whether the disk had little room when the last write transaction was committed.

        After a fault it may have more by now: whoever else filled it gave up too.
        """
        return self._room_bytes < _LITTLE_ROOM_BYTES

    def _opened(self) -> lmdb.Environment:
        if self._env is None:
            raise ServiceUnavailable(
                service="index", why="its item store is closed after a fault of the disk"
            )
        return self._env

    def _follow_writer(self) -> None:
        """Maps twice what the writer has used, which is more than this process had mapped."""
        with self._gate.exclusive():
            self._opened().set_mapsize(max(self.map_bytes(), 2 * self.used_bytes()))


def raise_limit(path: Path, map_bytes: int) -> int:
    """Lets the store at the path grow to so many bytes, also while a process writes to it.

    Returns the limit in force, which is never lowered: it may have been higher. The writer takes it
    up when its map is full, and at each start. Raises StoreRefused where there is no store, or for
    a limit that no process has addresses for.
    """
    if map_bytes > MAX_LIMIT_BYTES:
        raise StoreRefused(
            f"{map_bytes >> 30:,} GiB is more than a process has addresses for; give at most "
            f"{MAX_LIMIT_BYTES >> 30:,}"
        )
    if not (path / DATA_NAME).is_file():
        raise StoreRefused(f"{path} has no item store in it: name the folder of a shard's store")
    if (limit := _raised_limit(path)) >= map_bytes:
        return limit
    partial = path / f"{_LIMIT_NAME}.part"
    with partial.open("w") as file:
        file.write(f"{map_bytes}\n")
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path / _LIMIT_NAME)
    sync_folders(path)
    return map_bytes


def sync_folders(*folders: Path) -> None:
    """Makes the names in folders durable; a file's own sync covers only what is in it."""
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _raised_limit(path: Path) -> int:
    file = path / _LIMIT_NAME
    try:
        # A named pipe, say, would be waited for.
        limit = int(file.read_bytes()[:_MAX_LIMIT_CHARACTERS]) if file.is_file() else 0
    except (OSError, ValueError):
        return 0
    return limit if 0 < limit <= MAX_LIMIT_BYTES else 0
