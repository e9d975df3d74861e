"""The one process that may write a store."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tandem.item_store.refused import StoreRefused
from tandem.private_files import PRIVATE_FILE

FILE_NAME = "writer.lock"


class WriterLock:
    """A lock on `writer.lock` in the store's folder; the kernel frees it when the process ends.

    LMDB itself would let two writers take turns, and each would search without what the other
    wrote.
    """

    def __init__(self, folder: Path) -> None:
        """Takes the lock; raises StoreRefused, with the holder's process id, where it is taken."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(folder / FILE_NAME, flags, PRIVATE_FILE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise StoreRefused(
                f"{folder} has a writer already, process {holder or 'unknown'}: stop that first, "
                "or give this shard a folder of its own"
            ) from None
        with suppress(OSError):  # on a full disk: then its holder has no name
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets another process write."""
        os.close(self._descriptor)
