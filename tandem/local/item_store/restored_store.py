"""Puts a store into an empty folder at once, as the beginning of a new history."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.file_system import check_file_system
from tandem.local.item_store.files import RESTORING_NAME, StoreFiles
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.write_fence import SEALED_KEY
from tandem.local.item_store.writer_lock import FILE_NAME as WRITER_LOCK_NAME
from tandem.local.item_store.writer_lock import WriterLock
from tandem.platform.files.private_files import PRIVATE_FILE, PRIVATE_FOLDER
from tandem.platform.files.whole_file import sync


@contextmanager
def restoring(store: Path) -> Iterator[Path]:
    """Yields an empty folder, and then puts the `data.mdb` in it into the store at once.

    The store gets a new store_id, because the lost store may have used the numbers of its next
    changes already, and it takes writes, though the lost one may have been sealed. Raises
    StoreRefused where the store is not an empty folder.
    """
    check_file_system(store)
    store.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    lock = WriterLock(store)
    try:
        _check_empty(store)
        folder = store / RESTORING_NAME
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(PRIVATE_FOLDER)
        sync(store)
        yield folder
        (folder / DATA_NAME).chmod(PRIVATE_FILE)
        _begin_history(folder)
        sync(folder)
        (folder / DATA_NAME).rename(store / DATA_NAME)
        sync(store)
        shutil.rmtree(folder)
    finally:
        lock.release()


def _check_empty(store: Path) -> None:
    # Every ext4 volume has lost+found in its root.
    allowed = {"lost+found", WRITER_LOCK_NAME, RESTORING_NAME}
    if others := sorted(path.name for path in store.iterdir() if path.name not in allowed):
        raise StoreRefused(
            f"{store} is not empty ({', '.join(others[:3])}): move its contents away, or "
            "restore into another folder"
        )


def _begin_history(folder: Path) -> None:
    """Gives the store in the folder a new store_id, takes its seal away, and syncs it."""
    size_bytes = (folder / DATA_NAME).stat().st_size
    # The existing pages, and room for one more transaction.
    files = StoreFiles(folder, None, readonly=False, map_bytes=size_bytes + (1 << 20))
    with closing(files), files.env.write() as txn:
        files.put_meta(txn, "store_id", uuid.uuid4().hex)
        files.delete_meta(txn, SEALED_KEY)
    sync(folder / DATA_NAME)
