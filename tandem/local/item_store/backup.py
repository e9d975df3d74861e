"""Backs up one shard's store while it serves, verifies backups and restores them.

A backup is a folder with the store's `data.mdb`, without free pages, and a `manifest.json`.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lmdb

from tandem.local.item_store.backup_manifest import MANIFEST_NAME, MANIFEST_VERSION, BackupManifest
from tandem.local.item_store.check import Show
from tandem.local.item_store.environment import DATA_NAME, DEFAULT_MAP_BYTES
from tandem.local.item_store.file_system import check_file_system
from tandem.local.item_store.files import (
    RESTORING_NAME,
    StoreFiles,
)
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.verdict import CheckDepth, Verdict, verify_in_child
from tandem.local.item_store.writer_lock import FILE_NAME as WRITER_LOCK_NAME
from tandem.local.item_store.writer_lock import WriterLock
from tandem.platform.files.private_files import PRIVATE_FILE, PRIVATE_FOLDER
from tandem.platform.files.whole_file import sync

_PARTIAL_SUFFIX = ".part"
_SHOW_SECONDS = 0.1


def utc_now() -> datetime:
    return datetime.now(UTC)


def back_up(
    store: Path,
    destination: Path,
    *,
    show: Show | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> tuple[Path, BackupManifest]:
    """Copies a store, even while it is written, into a new folder in `destination`; returns that.

    The copy is the state after one transaction. It gets its name once it is complete and synced;
    an interrupted copy keeps the suffix ".part" and is removed by the next backup. `show` gets the
    copied bytes and their upper bound. Raises StoreRefused.
    """
    with closing(checked_files(store)) as files:
        created_time = clock()
        name = f"shard-{files.identity.shard_number}-of-{files.identity.shard_count}"
        backup = destination / f"{name}-{created_time:%Y%m%dT%H%M%SZ}"
        if backup.exists():
            raise StoreRefused(f"{backup} exists already: wait a second, or remove it")
        destination.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        _remove_partial(destination)
        partial = backup.with_name(backup.name + _PARTIAL_SUFFIX)
        partial.mkdir(PRIVATE_FOLDER)
        lock = WriterLock(partial)
        try:
            manifest = _copy(files, partial, created_time, show)
            manifest.write(partial)
            (partial / WRITER_LOCK_NAME).unlink()
            for file in partial.iterdir():
                file.chmod(PRIVATE_FILE)
            sync(partial)
            partial.rename(backup)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:
            lock.release()
        sync(destination)
    return backup, manifest


def checked_files(store: Path) -> StoreFiles:
    """Opens a store to read it, served or not; raises StoreRefused where it is damaged."""
    # LMDB would kill this process where it cannot read a page.
    if damage := verify_in_child(store, CheckDepth.WALK).damage:
        raise StoreRefused(f"{store} is damaged ({damage[0]}): restore it from an earlier backup")
    return StoreFiles(store, None, readonly=True, map_bytes=DEFAULT_MAP_BYTES)


def is_backup(path: Path) -> bool:
    """Returns whether the folder is a backup, and not a store."""
    return (path / MANIFEST_NAME).exists()


def verify_backup(backup: Path, show: Show | None = None) -> Verdict:
    """Checks a backup against its manifest, then its contents; raises StoreRefused."""
    manifest = BackupManifest.read(backup)
    data = backup / DATA_NAME
    if not data.is_file():
        raise StoreRefused(f"{backup} has no {DATA_NAME}: it is not a complete backup")
    if (sha256 := _sha256(data)) != manifest.data_sha256:
        raise StoreRefused(
            f"{data} is damaged: its SHA-256 is {sha256[:16]}…, but {manifest.data_sha256[:16]}… "
            "in the manifest: use another backup"
        )
    return verify_in_child(backup, CheckDepth.VALUES, show=show)


def restore(backup: Path, store: Path, show: Show | None = None) -> BackupManifest:
    """Verifies a backup and restores it to a store in an empty folder.

    The store appears at once, when it is complete: opening what a killed restore left is refused,
    and another restore starts over. Raises StoreRefused.
    """
    check_file_system(store)
    check_sound(verify_backup(backup, show), backup)
    with restoring(store) as folder:
        shutil.copyfile(backup / DATA_NAME, folder / DATA_NAME)
    return BackupManifest.read(backup)


def check_sound(verdict: Verdict, backup: object) -> None:
    """Raises StoreRefused where a check of the backup found damage."""
    if not verdict.is_sound:
        why = (*verdict.damage, *verdict.corrupt_items)[0]
        raise StoreRefused(f"{backup} is damaged ({why}): use another backup")


@contextmanager
def restoring(store: Path) -> Iterator[Path]:
    """Yields an empty folder, and then puts the `data.mdb` in it into the store at once.

    The store gets a new store_id, because the lost store may have used the numbers of its next
    changes already. Raises StoreRefused where the store is not an empty folder.
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
        _rename_history(folder)
        sync(folder)
        (folder / DATA_NAME).rename(store / DATA_NAME)
        sync(store)
        shutil.rmtree(folder)
    finally:
        lock.release()


def _remove_partial(destination: Path) -> None:
    """Removes the remains of killed backups, but not a backup in progress."""
    for partial in destination.glob(f"shard-*{_PARTIAL_SUFFIX}"):
        try:
            WriterLock(partial).release()
        except StoreRefused:
            continue
        shutil.rmtree(partial)


def _copy(
    files: StoreFiles, partial: Path, created_time: datetime, show: Show | None
) -> BackupManifest:
    file = partial / DATA_NAME
    with files.env.read() as txn:
        with file.open("wb") as data, ThreadPoolExecutor(1) as threads:
            copying = threads.submit(files.env.copy_compacted, data.fileno(), txn)
            while wait((copying,), _SHOW_SECONDS).not_done:
                if show:
                    show(file.stat().st_size, files.env.used_bytes())
            copying.result()
        state = described(files, txn, created_time)
    sync(file)
    return BackupManifest(**state, data_bytes=file.stat().st_size, data_sha256=_sha256(file))


def copied(
    files: StoreFiles, txn: lmdb.Transaction, piece_bytes: int
) -> Generator[bytes, None, None]:
    """Yields the store as of a transaction, without free pages, in pieces."""
    read_end, write_end = os.pipe()

    def copy() -> None:
        with os.fdopen(write_end, "wb"):
            files.env.copy_compacted(write_end, txn)

    with ThreadPoolExecutor(1) as threads, os.fdopen(read_end, "rb") as pipe:
        copying = threads.submit(copy)
        while piece := pipe.read(piece_bytes):
            yield piece
        copying.result()


def described(files: StoreFiles, txn: lmdb.Transaction, created_time: datetime) -> dict[str, Any]:
    """Returns the fields that the manifests of all backups share."""
    counts = {key.removeprefix("index/"): 0 for key in files.meta_keys(txn, "index/")}
    for key in txn.cursor(files.items).iternext(values=False):
        index_id = bytes(key).split(b"\0", 1)[0].decode()
        counts[index_id] = counts.get(index_id, 0) + 1
    return {
        "manifest_version": MANIFEST_VERSION,
        "schema_version": files.schema_version,
        "shard_number": files.identity.shard_number,
        "shard_count": files.identity.shard_count,
        "store_id": files.store_id,
        "sequence": int(files.get_meta(txn, "sequence") or 0),
        "item_counts": counts,
        "created_time": created_time.isoformat(timespec="seconds"),
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _check_empty(store: Path) -> None:
    # Every ext4 volume has lost+found in its root.
    allowed = {"lost+found", WRITER_LOCK_NAME, RESTORING_NAME}
    if others := sorted(path.name for path in store.iterdir() if path.name not in allowed):
        raise StoreRefused(
            f"{store} is not empty ({', '.join(others[:3])}): move its contents away, or "
            "restore into another folder"
        )


def _rename_history(folder: Path) -> None:
    """Gives the store in the folder a new store_id and syncs it."""
    size_bytes = (folder / DATA_NAME).stat().st_size
    # The existing pages, and room for one more transaction.
    files = StoreFiles(folder, None, readonly=False, map_bytes=size_bytes + (1 << 20))
    with closing(files), files.env.write() as txn:
        files.put_meta(txn, "store_id", uuid.uuid4().hex)
    sync(folder / DATA_NAME)
