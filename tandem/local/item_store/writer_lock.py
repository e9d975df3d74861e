"""Locks a store, so that only one process writes it."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tandem.local.item_store.refused import StoreRefused
from tandem.platform.files.private_files import PRIVATE_FILE

FILE_NAME = "writer.lock"


class WriterLock:
    """Holds a lock on `writer.lock` in the store's folder; the kernel frees it with the process.

    LMDB itself would let two writers take turns, and each would miss the other's writes in its
    searches.
    """

    def __init__(self, folder: Path) -> None:
        """Takes the lock; raises StoreRefused with the holder's process id if it is held."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(folder / FILE_NAME, flags, PRIVATE_FILE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise StoreRefused(
                f"{folder} has a writer already, process {holder or 'unknown'}: stop it first, "
                "or give this shard its own folder"
            ) from None
        with suppress(OSError):  # on a full disk the holder stays unknown
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets another process write."""
        with suppress(OSError):  # closing alone would leave it to processes forked meanwhile
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
