"""Locks and checks the folder in which one stack keeps its stores and logs."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tandem.errors import TandemError
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.files import StoreFiles
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.writer_lock import FILE_NAME as WRITER_LOCK_NAME
from tandem.local.item_store.writer_lock import WriterLock
from tandem.stack.start_refused import StartRefused

LOCK_NAME = "up.lock"
_TRY_BYTES = 64 << 10
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_NOTE_BYTES = 80
_SMALL_MAP_BYTES = 1 << 20
# Services whose parent was just killed are still exiting.
_WRITER_WAIT_SECONDS = 2.0


class DataFolder:
    """A data folder that one stack holds, private to its user. Use it in a with statement."""

    def __init__(
        self, path: Path, *, holder: str = "tandem up", remedy: str = "another folder by --data"
    ) -> None:
        """Changes nothing yet. Errors name the `holder`, and say what to give instead."""
        self.path = path
        self._holder = holder
        self._remedy = remedy
        self._descriptor: int | None = None
        self.note = ""
        """What its user should know of it."""

    def take(self) -> None:
        """Creates the folder if needed, and locks it.

        Raises StartRefused if another stack holds it, a service still writes a store in it, or it
        is not writable; a full disk is, to delete items from it.
        """
        try:
            # It holds callers' contents, which other users must not read.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_lock()
            with self._unless_full():
                self._try_writing()
                (self.path / "logs").mkdir(mode=0o700, exist_ok=True)
            for folder in self.shard_folders():
                with suppress(PermissionError):  # another user's, who lets us write
                    folder.chmod(0o700)  # one of an earlier release was open to all
        except OSError as error:
            self.release()
            raise StartRefused(_fault_of(self.path, error, self._remedy)) from error
        for folder in self.shard_folders():
            self._check_writer(folder)

    def release(self) -> None:
        """Releases the folder."""
        if self._descriptor is not None:
            with suppress(OSError):  # closing alone would leave it to processes forked meanwhile
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def clear(self) -> None:
        """Deletes the stores and logs, and nothing else."""
        for folder in (*self.shard_folders(), self.path / "logs"):
            shutil.rmtree(folder)
        (self.path / "logs").mkdir(mode=0o700)

    def shard_folders(self) -> list[Path]:
        """Returns the existing shard folders by number."""
        numbered = [
            (int(number), path)
            for path in self.path.glob("shard-*")
            if (number := path.name.removeprefix("shard-")).isdecimal() and path.is_dir()
        ]
        return [path for _, path in sorted(numbered)]

    def shard_count(self) -> int | None:
        """Returns the shard count that the stores record; None without a store.

        Raises StartRefused if a shard has no store while another one has items: a new store would
        begin empty, and searches would silently miss its items.
        """
        shard_count = None
        for folder in self.shard_folders():
            if not (folder / DATA_NAME).is_file():
                continue
            # A damaged store is reported by its shard.
            with suppress(StoreRefused, TandemError, OSError):
                shard_count, item_count = _read_counts(folder)
                if item_count:
                    self._check_whole(shard_count, folder, item_count)
                    break
        return shard_count

    def _check_whole(self, shard_count: int, holding: Path, item_count: int) -> None:
        for number in range(shard_count):
            if not (self.path / f"shard-{number}" / DATA_NAME).is_file():
                raise StartRefused(
                    f"{self.path} has {shard_count} shards, and the store of shard-{number} is "
                    f"missing, while {holding.name} has {item_count:,} items: put its folder back, "
                    "restore it from a backup by tandem shard restore, or give "
                    f"{self._remedy}"
                )

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def _take_lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self.path / LOCK_NAME, flags, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note = os.pread(self._descriptor, _NOTE_BYTES, 0).decode("ascii", "replace")
            self.release()
            number, _, holder = note.strip().partition(" ")
            raise StartRefused(
                # Releases before the engine noted only their number.
                f"another {holder or 'tandem up'} (process {number or 'unknown'}) serves "
                f"{self.path}: stop it, or give {self._remedy}"
            ) from None
        note = f"{os.getpid()} {self._holder}\n"
        with self._unless_full():
            os.pwrite(self._descriptor, note.ljust(_NOTE_BYTES).encode(), 0)

    @contextmanager
    def _unless_full(self) -> Iterator[None]:
        """Passes over a full disk if there are items: they can be searched, and deleted from it."""
        try:
            yield
        except OSError as error:
            if error.errno not in FULL_DISK or not any(self.shard_folders()):
                raise
            self.note = (
                f"the disk of {self.path} is full: items can be searched and deleted, and stored "
                "once there is room"
            )

    def _try_writing(self) -> None:
        """Raises OSError if the folder or its disk is not writable."""
        path = self.path / f"{LOCK_NAME}.try"
        try:
            with path.open("wb") as file:
                file.write(bytes(_TRY_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            path.unlink(missing_ok=True)

    def _check_writer(self, folder: Path) -> None:
        if not (folder / WRITER_LOCK_NAME).is_file():
            return
        deadline_time = time.monotonic() + _WRITER_WAIT_SECONDS
        while True:
            try:
                WriterLock(folder).release()
                return
            except StoreRefused as error:
                if time.monotonic() > deadline_time:
                    self.release()
                    raise StartRefused(str(error)) from None
            time.sleep(0.1)


def _read_counts(folder: Path) -> tuple[int, int]:
    """Returns how many shards a store's index has, and how many items the store holds."""
    files = StoreFiles(folder, None, readonly=True, map_bytes=_SMALL_MAP_BYTES)
    try:
        with files.env.read() as txn:
            return files.identity.shard_count, txn.stat(files.items)["entries"]
    finally:
        files.close()


def _fault_of(path: Path, error: OSError, remedy: str) -> str:
    match error.errno:
        case errno.ENOTDIR | errno.EEXIST:
            folder = remedy.replace("another", "a", 1)
            return f"{path} is a file, or lies in one: give {folder}"
        case number if number in FULL_DISK:
            return f"the disk of {path} is full: make room, or give {remedy}"
        case errno.EROFS:
            return f"{path} is on a read-only disk: give {remedy}"
        case errno.EACCES | errno.EPERM:
            return f"{path} may not be written to by this user: give {remedy}"
        case _:
            return f"{path} cannot hold data ({error.strerror}): give {remedy}"
